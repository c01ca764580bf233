"""Which GPU a process computes on; decided before torch is imported, because torch looks at the variables only once.

Jobs of a sweep that run side by side on one machine are spread over the visible GPUs, and each sees its own alone, so
that "cuda" means that one everywhere. The processes of one torchrun launch are spread by `toolshift.runs.ranks.adapt`.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
from collections.abc import Mapping, MutableMapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


class DeviceError(RuntimeError):
    """The device that was asked for is not there."""

    user_facing = True


def claim(device: str, *, job: int | None = None, environment: MutableMapping[str, str] | None = None) -> None:
    """Give this process its GPU and make sure that torch can use it; does nothing for ``cpu``.

    job: number of this process's job in a sweep; None for a single command, which keeps what is visible. A process that
    works on several jobs keeps the GPU of its first one: it has memory there.

    Raises:
        DeviceError: if torch sees no GPU; the message says why.
    """
    if device != "cuda":
        return
    environment = os.environ if environment is None else environment
    if job is not None:
        names = visible_devices(environment)
        if names:
            environment[VISIBLE] = names[_place(job) % len(names)]
    _require_cuda(environment)


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """Names of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` takes them; empty if none is known."""
    given = environment.get(VISIBLE)
    if given is None:
        return [str(number) for number in range(_count())]
    names: list[str] = []
    for name in (part.strip() for part in given.split(",")):
        if not name or name.startswith("-"):  # CUDA ignores everything from the first invalid name on
            break
        names.append(name)
    return names


def _place(job: int) -> int:
    """Number of the worker process where there is a pool of them (joblib), else of the job.

    A worker takes whatever job comes next, so by job number two workers could meet on one GPU while another idles.
    """
    identity: tuple[int, ...] = getattr(multiprocessing.current_process(), "_identity", ())
    return identity[-1] - 1 if identity else job


def _count() -> int:
    """GPUs of this machine, without a numerical package; 0 where the driver does not tell."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in Path("/dev").glob("nvidia*"))
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def _require_cuda(environment: Mapping[str, str]) -> None:
    import torch

    if torch.cuda.is_available():
        return
    raise DeviceError(f"runtime.device=cuda, but {_reason(torch.version, environment)}; or use runtime=cpu")


def _reason(version: object, environment: Mapping[str, str]) -> str:
    """Why there is no GPU, and what to do; ``version``: ``torch.version``."""
    if getattr(version, "cuda", None) is None and getattr(version, "hip", None) is None:
        return "the installed torch is built for the CPU alone: install a CUDA build (README, Installation)"
    if VISIBLE in environment and not visible_devices(environment):
        return f"{VISIBLE}={environment[VISIBLE]!r} hides every GPU: unset it"
    shown = f" among {VISIBLE}={environment[VISIBLE]}" if VISIBLE in environment else ""
    return f"torch finds no usable GPU{shown}: check nvidia-smi and the driver"
