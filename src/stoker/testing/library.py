"""Builds the C fake of NVML."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = "libnvidia-ml.so.1"
_SOURCE = os.path.join(os.path.dirname(__file__), "fake_nvml.c")


def build(
    folder: str | os.PathLike[str], without: Iterable[str] = (), *, frozen: bool = False
) -> str:
    """Compile `libnvidia-ml.so.1` into the folder with gcc, and return its path.

    The library lacks the C functions in `without`, like an older driver. A `frozen` library reads its state
    only once, for benchmarks.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, _NAME)
    defines = [f"-D{function}=absent_{function}" for function in without]
    defines += ["-DFROZEN"] if frozen else []
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    name = f"-Wl,-soname,{_NAME}"
    subprocess.run(["gcc", *flags, name, *defines, "-o", path, _SOURCE], check=True)
    return path
