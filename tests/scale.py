"""How much is tried: a little each time, and much in `make fault` and `make soak`."""

from __future__ import annotations

import os

import pytest

LONG = "STOKER_LONG" in os.environ
"""Whether the long form of each test is wanted."""

long_only = pytest.mark.skipif(not LONG, reason="takes long: make fault, make soak")
