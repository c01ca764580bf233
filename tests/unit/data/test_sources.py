from __future__ import annotations

import pytest

from toolshift.data.sources import SOURCES, source_of


@pytest.mark.parametrize("dataset", sorted(SOURCES))
def test_a_source_says_where_which_state_which_licence_and_which_files(dataset: str) -> None:
    source = source_of(dataset)
    assert source.dataset == dataset
    hint = source.hint()
    for part in (source.place, source.revision, source.licence, *source.steps, *(f.pattern for f in source.files)):
        assert part
        assert part in hint
    assert any(f.required for f in source.files)
    assert f"<data.root>/{dataset}/" in hint


def test_an_unknown_dataset_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match="toolbench"):
        source_of("toolbank")
