"""Options that `stoker.run`, `stoker.sweep` and `stoker.Executor` have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from stoker.containers.command import read_image
from stoker.core.job import Options, Request
from stoker.core.sharing.rules import NEVER, parse_share
from stoker.core.size import parse_size
from stoker.errors import UsageError
from stoker.submit_context import make_absolute
from stoker.task import messages

Gpus = str | Sequence["str | int | Sequence[str | int]"]
"""GPUs as for `stoker run --gpus`, or a list of them. An inner list is one slot with several GPUs."""


class GpuOptions(msgspec.Struct, frozen=True):
    """Which GPUs an engine uses, and how many of them each job gets."""

    gpus: Gpus | None = None
    gpus_per_job: int = 1
    jobs_per_gpu: int = 1
    max_workers: int | None = None

    def make_request(
        self,
        *,
        timeout_s: float | None,
        retries: int,
        share: str,
        gpu_mem: str | None,
        image: str | None = None,
    ) -> Request:
        """Return what each job needs. Jobs share a GPU only if they need exactly one."""
        sharing = _parse_share(share)
        return Request(
            slots=self.gpus_per_job,
            timeout_s=timeout_s,
            retries=retries,
            share=sharing if self.gpus_per_job == 1 else None,
            gpu_mem=_parse_gpu_mem(gpu_mem),
            options=Options(image=_read_image(image)),
        )

    def make_open(
        self,
        gpu_mem: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> messages.Open:
        """Return the message that opens the engine; `env` is added to this process's environment."""
        cpu_places = self._count_cpu_places()
        gpus = "" if self.gpus_per_job == 0 else self.gpus
        spelled = None if gpus is None else spell_gpus(gpus)
        if not (cpu_places or spelled is None or spelled.strip(", +")):
            raise UsageError("no GPU is named: gpus='0,1', or gpus_per_job=0 for work without one")
        return messages.Open(
            env=encode_texts({**os.environ, **(env or {})}),
            cwd=make_absolute(cwd or "."),
            gpus=spelled,
            jobs_per_gpu=self.jobs_per_gpu,
            cpu_places=cpu_places,
            gpu_mem=gpu_mem,
        )

    def _count_cpu_places(self) -> int:
        """Return how many jobs that need no GPU run at once."""
        if self.max_workers is not None and self.gpus_per_job:
            raise UsageError("max_workers is for work without GPU: pass gpus_per_job=0 with it")
        if self.max_workers is not None and self.max_workers < 1:
            raise UsageError(f"max_workers={self.max_workers}: at least 1 is needed")
        return (self.max_workers or os.cpu_count() or 1) if self.gpus_per_job == 0 else 0


def spell_gpus(gpus: Gpus) -> str:
    """Return GPUs as one text, as `--gpus` takes it."""
    if isinstance(gpus, str):
        return gpus
    slots = ["+".join(map(str, [each] if isinstance(each, str | int) else each)) for each in gpus]
    if not all(slots):
        raise UsageError("a slot without a GPU: name at least one in each")
    return ",".join(slots)


def encode_texts(texts: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return an environment or another mapping of texts as bytes; TypeError for other values."""
    return {os.fsencode(name): os.fsencode(value) for name, value in texts.items()}


def decode_texts(texts: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return what `encode_texts` encoded."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in texts.items()}


def _parse_share(share: str) -> str | None:
    try:
        rule = parse_share(share)
    except ValueError as error:
        raise UsageError(f"share: {error}") from None
    return None if rule == NEVER else rule.text


def _read_image(image: str | None) -> str | None:
    try:
        return None if image is None else read_image(image)
    except ValueError as error:
        raise UsageError(f"image: {error}") from None


def _parse_gpu_mem(gpu_mem: str | None) -> int | None:
    try:
        return None if gpu_mem is None else parse_size(gpu_mem)
    except ValueError as error:
        raise UsageError(f"gpu_mem: {error}") from None
