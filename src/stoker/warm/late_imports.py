"""Large libraries that a program imports late: in a function, in `try`, or after other statements.

A worker imports them before the program does, so that also its first run starts with them. This is done only
where the program cannot tell: it changes no variable and no search path on which the import of the library
depends. Standard library only, as the worker.
"""

from __future__ import annotations

import contextlib
import os

from .program_scan import ProgramScan, UnsafeProgramError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .messages import FileStamp


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LIBRARIES = _words(
    """
    accelerate datasets diffusers flax jax lightning matplotlib numpy optax pandas peft pyarrow
    pytorch_lightning safetensors scipy sklearn timm tokenizers torch torchaudio torchmetrics torchvision
    transformers
    """
)
"""Libraries whose import takes long, and has no effect that a program without it would notice."""
_KNOWN = LIBRARIES | _words(
    """
    PIL absl attr attrs click cloudpickle colorama cv2 dill einops filelock fire h5py imageio joblib loguru
    ml_collections msgpack networkx omegaconf orjson packaging prettytable psutil pydantic requests rich
    seaborn simple_parsing skimage stoker sympy tabulate tensorboard tensorboardX termcolor toml tomli tqdm
    typer typing_extensions ujson wandb yaml
    """
)
"""Packages that change neither variables nor search paths of the libraries."""
# Beginnings of variables that the libraries, or the C libraries below them, may read when they are imported.
# What they read with `os.environ` need not be named: `reads_of_environment` finds it.
_READ_AT_IMPORT = _words(
    """
    ACCELERATE_ ARROW_ ATEN_ BLIS_ C10_ CUBLAS_ CUDA CUDNN_ DATASETS_ GLIBC_ GOMP_ GOTO_ HF_ HIP_ HOME HSA_
    HUGGINGFACE_ JAX JE_ KINETO_ KMP_ LANG LC_ LD_ LIBRARY_PATH MALLOC_ MKL_ MPL NCCL_ NPY_ NUMEXPR_ NUMPY_
    NVIDIA_ NVTE_ OMPI_ OMP_ OPENBLAS_ PATH PYTHON PYTORCH ROCR_ SCIPY_ SKLEARN_ TF_ TMP TORCH TRANSFORMERS_
    TRITON_ TZ USE_ VECLIB_ XDG_ XLA_
    """
)
# Exceptions: CUDA and cuBLAS read these when a program uses a GPU.
_READ_AT_USE = _words(
    "CUBLAS_WORKSPACE_CONFIG CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES"
)


class LateImports:
    """Modules that a program imports late, and the names that it takes from them.

    `is_safe`: the program changes nothing that such imports depend on. `variables` are those that the
    program sets itself: if an import reads one of them, it must not be made ahead. `stamps` are those of the
    program's sources: if one changes, this may no longer hold.
    """

    def __init__(self, scan: ProgramScan | None = None) -> None:
        self.is_safe = scan is not None
        self.names = list(scan.imports) if scan else []
        self.parts = list(scan.parts) if scan else []
        self.variables = scan.variables - {"CUDA_VISIBLE_DEVICES"} if scan else set()
        found = scan.files.values() if scan else ()
        self.stamps: list[FileStamp] = [stamp for stamp in found if stamp is not None]


def find_late_imports(script: str) -> LateImports:
    """Return the large libraries that a program may get imported ahead; none if the program might notice."""
    scan = ProgramScan(LIBRARIES, _KNOWN)
    try:
        scan.scan(script)
    except (UnsafeProgramError, OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return LateImports()
    doubtful = scan.variables - _READ_AT_USE
    return LateImports() if any(map(_is_read_at_import, doubtful)) else LateImports(scan)


def _is_read_at_import(variable: str) -> bool:
    return variable.upper().startswith(tuple(_READ_AT_IMPORT))


@contextlib.contextmanager
def reads_of_environment(variables: set[str]) -> Iterator[set[str]]:
    """Collect which of these variables are looked up in `os.environ`. A walk through all of them counts."""
    kind: Any = type(os.environ)
    look_up, walk = kind.__getitem__, kind.__iter__
    found: set[str] = set()

    def __getitem__(environ: Any, key: Any) -> Any:  # noqa: N807 - it replaces that method
        name = os.fsdecode(key) if isinstance(key, (str, bytes)) else ""
        if name in variables:
            found.add(name)
        return look_up(environ, key)

    def __iter__(environ: Any) -> Any:  # noqa: N807
        found.update(variables)
        return walk(environ)

    kind.__getitem__, kind.__iter__ = __getitem__, __iter__
    try:
        yield found
    finally:
        kind.__getitem__, kind.__iter__ = look_up, walk
