"""Phases of a supervisor: serving, finishing, stopping."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Whether more attempts may come."""

    SERVING = enum.auto()
    FINISHING = enum.auto()  # the client waits until nothing is left
    STOPPING = enum.auto()  # the process ends
