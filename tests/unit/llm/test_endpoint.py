"""What is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolshift.llm import endpoint as module
from toolshift.llm.client import client_of
from toolshift.llm.errors import EndpointError, NotAvailable
from toolshift.llm.outcomes import Answer
from toolshift.llm.store import ReplayStore

URL = "http://localhost:8000/v1"


@pytest.mark.parametrize("mode", ["record", "live"])
def test_without_an_endpoint_a_row_is_not_run(kit: Any, tmp_path: Path, mode: str) -> None:
    with pytest.raises(NotAvailable, match=r"params\.base_url=URL") as caught:
        kit.endpoint(None, tmp_path, mode=mode).check({})
    assert caught.value.not_run
    assert caught.value.user_facing
    with pytest.raises(NotAvailable, match=r"params\.llm=NAME"):
        kit.endpoint(URL, tmp_path, mode=mode, model="").check({})


def test_replay_needs_a_record_and_nothing_else(kit: Any, tmp_path: Path) -> None:
    endpoint = kit.endpoint(None, tmp_path, mode="replay")
    with pytest.raises(NotAvailable, match="nothing is recorded of m/1"):
        endpoint.check({})
    ReplayStore(tmp_path).put(kit.request(), Answer(text="fine"))
    endpoint.check({})
    with pytest.raises(NotAvailable, match="nothing is recorded of m/2"):
        kit.endpoint(None, tmp_path, mode="replay", model="m/2").check({})


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_stops_before_any_work(kit: Any, tmp_path: Path, value: str | None) -> None:
    pytest.importorskip("openai", reason="the extra `llm` is not installed")
    environment = {} if value is None else {kit.VARIABLE: value}
    with pytest.raises(EndpointError, match=kit.VARIABLE) as caught:
        kit.endpoint(URL, tmp_path).check(environment)
    assert caught.value.user_facing
    assert not getattr(caught.value, "not_run", False)  # it was asked for, so it is no mere hole
    kit.endpoint(URL, tmp_path).check({kit.VARIABLE: "k"})
    kit.endpoint(URL, tmp_path, api_key_env=None).check({})


def test_without_the_client_library_a_row_is_not_run(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(NotAvailable, match="EXTRAS=llm"):
        kit.endpoint(URL, tmp_path).check({kit.VARIABLE: "k"})


@pytest.mark.parametrize("pasted", ["sk-abc123", "abcdef0123456789", "A KEY", ""])
def test_a_key_in_place_of_its_variable_is_refused_and_not_echoed(kit: Any, tmp_path: Path, pasted: str) -> None:
    with pytest.raises(EndpointError, match="never the key itself") as caught:
        kit.endpoint(URL, tmp_path, api_key_env=pasted).check({})
    assert not pasted or pasted not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:secret@host/v1", "http://host/v1?key=secret", "http://secret@host/v1", "http://host/v1#secret"]
)
def test_an_address_with_credentials_is_refused_and_not_echoed(kit: Any, tmp_path: Path, url: str) -> None:
    with pytest.raises(EndpointError, match="api_key_env") as caught:
        kit.endpoint(url, tmp_path).check({kit.VARIABLE: "k"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1", "http://", "v1"])
def test_an_address_of_another_kind(kit: Any, tmp_path: Path, url: str) -> None:
    with pytest.raises(EndpointError, match="expected an address such as"):
        kit.endpoint(url, tmp_path).check({kit.VARIABLE: "k"})


@pytest.mark.parametrize(
    "changed", [{"mode": "playback"}, {"attempts": 0}, {"concurrency": 0}, {"timeout_s": 0.0}, {"timeout_s": -1.0}]
)
def test_values_out_of_range(kit: Any, tmp_path: Path, changed: dict[str, Any]) -> None:
    (name,) = changed
    with pytest.raises(EndpointError, match=name):
        kit.endpoint(URL, tmp_path, **changed).check({kit.VARIABLE: "k"})


def test_one_client_per_endpoint(kit: Any, tmp_path: Path) -> None:
    ReplayStore(tmp_path).put(kit.request(), Answer(text="fine"))
    endpoint = kit.endpoint(None, tmp_path, mode="replay")
    assert client_of(endpoint) is client_of(kit.endpoint(None, tmp_path, mode="replay"))
    assert client_of(endpoint) is not client_of(kit.endpoint(None, tmp_path, mode="replay", attempts=4))
