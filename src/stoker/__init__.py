"""Stoker keeps every GPU fed."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing it from typing would cost more than the rest of `--version`
if TYPE_CHECKING:
    from typing import Any

    from stoker.outcomes.results import results
    from stoker.reporting import report

__all__ = ["__version__", "report", "results"]

_HOMES = {"report": "stoker.reporting", "results": "stoker.outcomes.results"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
