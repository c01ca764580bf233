"""A study: its folder, its parts, what a rerun does and what its tables are drawn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from toolshift.experiment.study import StudyRun, rebuild_study, run_study, study_identity
from toolshift.experiment.tables import Written
from toolshift.runs.files import read_json, write_text
from toolshift.settings.compose import load_settings
from toolshift.settings.errors import UserError
from toolshift.settings.launch import Launch
from toolshift.settings.schema import Settings, StudySettings


class Toy:
    """Squares of the numbers below ``params.n``; counts how often it computes."""

    made: ClassVar[list[str]] = []
    fails: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def inputs(self) -> Mapping[str, str]:
        return {"numbers": "abc"}

    def compute(self, run: StudyRun) -> None:
        for power in (2, 3):
            run.part(f"power={power}", lambda power=power: self._powers(power))
            if self.fails:
                raise ValueError("no cubes today")

    def _powers(self, power: int) -> pd.DataFrame:
        self.made.append(f"power={power}")
        numbers = list(range(int(self.settings.study.params["n"])))
        return pd.DataFrame({"number": numbers, "value": [n**power for n in numbers]})

    def report(self, run: StudyRun) -> Written:
        total = sum(int(run.read(name)["value"].sum()) for name in run.parts())
        path = write_text(Path(self.settings.paths.outputs) / "tables" / "toy.csv", f"total\n{total}\n")
        return Written(paths=(path,), markdown=f"total {total}")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Toy, "made", [])
    monkeypatch.setattr(Toy, "fails", False)

    def make(*, n: int = 4, keys: tuple[str, ...] = ()) -> Launch:
        composed = load_settings("train", ["debug=tiny", f"paths.outputs={tmp_path / 'outputs'}"])
        study = StudySettings(
            name="toy", target=f"{__name__}:Toy", title="Toy", reference=None, params={"n": n}, paper=()
        )
        settings = dataclasses.replace(composed, name="toy", study=study)
        return Launch(settings=settings, overrides=(), overridden_keys=keys, command="train")

    return make


def folders(launch: Launch) -> list[Path]:
    return sorted((Path(launch.settings.paths.outputs) / "runs" / "toy").iterdir())


def test_a_run_leaves_parts_a_record_and_a_table(launch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_study(launch()) == 0
    (folder,) = folders(launch())
    assert read_json(folder / "status.json")["state"] == "done"
    record = read_json(folder / "run.json")
    assert record["parts"] == ["power=2", "power=3"]
    assert record["fingerprints"] == {"numbers": "abc"}
    assert "total 50" in capsys.readouterr().out  # 0 + 1 + 4 + 9, and 0 + 1 + 8 + 27


def test_a_rerun_computes_nothing_and_other_parameters_are_another_run(launch: Any) -> None:
    run_study(launch())
    run_study(launch())
    assert Toy.made == ["power=2", "power=3"]
    run_study(launch(n=5))
    assert len(folders(launch())) == 2


def test_a_failed_run_says_so_and_continues_with_what_is_missing(launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "fails", True)
    with pytest.raises(ValueError, match="no cubes"):
        run_study(launch())
    (folder,) = folders(launch())
    assert read_json(folder / "status.json")["state"] == "failed"
    monkeypatch.setattr(Toy, "fails", False)
    assert run_study(launch()) == 0
    assert Toy.made == ["power=2", "power=3"]


def test_parts_of_other_code_are_made_again(launch: Any) -> None:
    run_study(launch())
    (folder,) = folders(launch())
    (folder / ".code").write_text("another version")
    run_study(launch())
    assert Toy.made == ["power=2", "power=3"] * 2


def test_tables_are_rebuilt_from_the_folder_alone(launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(launch())
    monkeypatch.setattr(Toy, "inputs", lambda self: pytest.fail("reads data"))
    written = rebuild_study(launch(n=99).settings, launch(n=99))
    assert written is not None
    assert written.markdown == "total 50"  # as made, not as composed
    assert rebuild_study(launch(n=99).settings, launch(n=99, keys=("study.params.n",))) is None


def test_a_key_that_no_study_reads_is_refused(launch: Any) -> None:
    with pytest.raises(UserError, match=r"does not read model, view\.universe"):
        run_study(launch(keys=("view.universe", "model", "seeds")))


def test_places_are_no_part_of_the_identity(launch: Any) -> None:
    settings = launch().settings
    moved = dataclasses.replace(settings, data=dataclasses.replace(settings.data, cache="elsewhere"))
    renamed = dataclasses.replace(settings, study=dataclasses.replace(settings.study, title="Another title"))
    same = [study_identity(s, inputs={"a": "b"}) for s in (settings, moved, renamed)]
    assert same[0] == same[1] == same[2]
    assert study_identity(settings, inputs={"a": "c"}) != same[0]


def test_a_missing_class_is_told(launch: Any) -> None:
    settings = launch().settings
    study = dataclasses.replace(settings.study, target=f"{__name__}:Missing")
    with pytest.raises(UserError, match=r"study\.target"):
        run_study(dataclasses.replace(launch(), settings=dataclasses.replace(settings, study=study)))
