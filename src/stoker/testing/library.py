"""Builds the C fakes of NVML and of libcuda's checkpoint calls."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NVML = "libnvidia-ml.so.1"
_CUDA = "libcuda.so.1"


def build(
    folder: str | os.PathLike[str], without: Iterable[str] = (), *, frozen: bool = False
) -> str:
    """Compile `libnvidia-ml.so.1` into the folder with gcc, and return its path.

    The library lacks the C functions in `without`, like an older driver. A `frozen` library reads its state
    only once, for benchmarks.
    """
    return _compile(folder, _NVML, "fake_nvml.c", without, ["-DFROZEN"] if frozen else [])


def build_cuda(folder: str | os.PathLike[str], without: Iterable[str] = ()) -> str:
    """Compile `libcuda.so.1` with the checkpoint calls into the folder, and return its path.

    The library lacks the C functions in `without`, like a driver before 570.
    """
    return _compile(folder, _CUDA, "fake_cuda.c", without, [])


def _compile(
    folder: str | os.PathLike[str],
    name: str,
    source: str,
    without: Iterable[str],
    defines: list[str],
) -> str:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    absent = [f"-D{function}=absent_{function}" for function in without]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    code = os.path.join(os.path.dirname(__file__), source)
    words = [*flags, f"-Wl,-soname,{name}", *absent, *defines, "-o", path, code]
    subprocess.run(["gcc", *words], check=True)
    return path
