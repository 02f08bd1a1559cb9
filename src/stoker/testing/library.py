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
    """Compile `libnvidia-ml.so.1` into the folder and return its path; gcc must be there.

    `without` names C functions that the library shall lack, as an older driver does. A `frozen` one reads
    its state once, so that its files cost nothing where calls are measured.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, _NAME)
    renamed = [f"-D{function}=absent_{function}" for function in without]
    renamed += ["-DFROZEN"] if frozen else []
    strictly = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [
            "gcc",
            *strictly,
            "-shared",
            f"-Wl,-soname,{_NAME}",
            "-fPIC",
            *renamed,
            "-o",
            path,
            _SOURCE,
        ],
        check=True,
    )
    return path
