"""Which GPU a job gets, with a made-up machine: no GPU and no CUDA build of torch is needed."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolshift.runs import devices
from toolshift.runs.devices import VISIBLE, DeviceError, claim, visible_devices


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch sees a GPU; the driver lists three."""
    monkeypatch.setattr(devices, "_require_cuda", lambda _: None)
    monkeypatch.setattr(devices, "_count", lambda: 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("5, 7", ["5", "7"]),
        ("GPU-a,MIG-b", ["GPU-a", "MIG-b"]),
        ("0,-1,2", ["0"]),
        ("-1", []),
        ("", []),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_what_is_visible(given: str | None, expected: list[str]) -> None:
    assert visible_devices({} if given is None else {VISIBLE: given}) == expected


@pytest.mark.usefixtures("gpus")
def test_jobs_go_round_the_visible_devices() -> None:
    got = []
    for job in range(5):
        environment = {VISIBLE: "4,2"}
        claim("cuda", job=job, environment=environment)
        got.append(environment[VISIBLE])
    assert got == ["4", "2", "4", "2", "4"]
    environment: dict[str, str] = {}
    claim("cuda", job=4, environment=environment)
    assert environment == {VISIBLE: "1"}


@pytest.mark.usefixtures("gpus")
def test_a_process_keeps_the_device_of_its_first_job() -> None:
    environment = {VISIBLE: "4,2"}
    for job in (1, 2, 5):
        claim("cuda", job=job, environment=environment)
        assert environment == {VISIBLE: "2"}


@pytest.mark.usefixtures("gpus")
def test_in_a_pool_the_worker_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, four jobs, in the order in which they become free: never both on one device."""
    got = []
    for worker, job in ((1, 0), (2, 3)):
        monkeypatch.setattr(multiprocessing, "current_process", lambda w=worker: SimpleNamespace(_identity=(w,)))
        environment = {VISIBLE: "0,1,2"}
        claim("cuda", job=job, environment=environment)
        got.append(environment[VISIBLE])
    assert got == ["0", "1"]


@pytest.mark.usefixtures("gpus")
def test_a_single_command_and_the_cpu_change_nothing() -> None:
    environment = {VISIBLE: "4,2"}
    claim("cuda", environment=environment)
    claim("cpu", job=1, environment=environment)
    assert environment == {VISIBLE: "4,2"}


def test_the_device_is_set_before_torch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(devices, "_require_cuda", lambda environment: seen.append(environment[VISIBLE]))
    claim("cuda", job=1, environment={VISIBLE: "4,2"})
    assert seen == ["2"]


def test_nothing_of_this_imports_torch() -> None:
    code = "import sys; from toolshift.runs import devices; devices.claim('cpu', job=1); print('torch' in sys.modules)"
    env = {"PYTHONPATH": str(Path(devices.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("version", "environment", "message"),
    [
        ({"cuda": None, "hip": None}, {}, "built for the CPU alone"),
        ({"cuda": "13.0"}, {VISIBLE: ""}, "CUDA_VISIBLE_DEVICES='' hides every GPU: unset it"),
        ({"cuda": "13.0"}, {VISIBLE: "9"}, "no usable GPU among CUDA_VISIBLE_DEVICES=9"),
        ({"cuda": None, "hip": "6.2"}, {}, "no usable GPU: check nvidia-smi"),
    ],
)
def test_without_a_gpu_the_reason_is_named(
    version: Any, environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "version", SimpleNamespace(**version))
    with pytest.raises(DeviceError, match=r"runtime\.device=cuda, but") as refused:
        claim("cuda", environment=environment)
    assert message in str(refused.value)
    assert "or use runtime=cpu" in str(refused.value)


@pytest.mark.parametrize(
    ("listed", "expected"), [("GPU 0: A (UUID: x)\n  MIG 1g: (UUID: y)\nGPU 1: B (UUID: z)\n", 2), ("No devices\n", 0)]
)
def test_the_driver_counts(listed: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=listed))
    assert devices._count() == expected
