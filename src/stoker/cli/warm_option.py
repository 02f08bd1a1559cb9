"""What `--warm` is given: names of modules, or auto."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.warm.command import check_modules, is_python


def read_modules(text: str) -> list[str]:
    """The modules that a job is to find imported."""
    modules = [name for name in text.replace(",", " ").split() if name]
    if not modules or is_python(modules[0]):
        raise UsageError("--warm: name modules before the command: --warm torch, or --warm auto")
    problem = check_modules(modules)
    if problem is not None:
        raise UsageError(f"--warm: {problem}")
    return modules
