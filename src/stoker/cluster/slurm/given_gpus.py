"""GPUs that a batch system gave to this process."""

from __future__ import annotations

from collections.abc import Mapping

JOB_ID = "SLURM_JOB_ID"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OF_JOB = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
_NONE = ("", "-1", "NoDevFiles")


def given_gpus(environ: Mapping[str, str], count: int | None) -> str | None:
    """Return the given GPUs in the form of --gpus: empty for none, None for all of the machine.

    `count` is how many GPUs the driver shows here; None without a driver. CUDA_VISIBLE_DEVICES has the
    numbers that count here. SLURM_JOB_GPUS has those of the machine: where Slurm hides all other GPUs, a
    job with the GPUs 2 and 3 sees them as 0 and 1.
    """
    visible = environ.get(_VISIBLE)
    if visible is not None:
        return "" if visible.strip() in _NONE else visible.strip()
    if JOB_ID not in environ:
        return None
    of_machine = next((environ[name] for name in _OF_JOB if environ.get(name)), "")
    numbers = [number for number in of_machine.split(",") if number]
    if count is not None and len(numbers) == count:
        numbers = [str(number) for number in range(count)]
    return ",".join(numbers)
