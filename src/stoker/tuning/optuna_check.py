"""Tells whether Optuna is installed, without importing it."""

from __future__ import annotations

import importlib.util

from stoker.errors import UsageError


def check_optuna() -> None:
    """Raise UsageError if Optuna is missing."""
    if importlib.util.find_spec("optuna") is None:
        raise UsageError("method tpe needs Optuna: pip install 'stoker[tune]'", field="method")
