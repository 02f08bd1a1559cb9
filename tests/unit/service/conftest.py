"""The daemon's queue without a daemon: the same fixtures as the engine's tests have."""

from __future__ import annotations

from unit.engine.conftest import harness, make_harness

__all__ = ["harness", "make_harness"]
