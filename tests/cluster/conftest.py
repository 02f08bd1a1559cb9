"""Hosts for tests of clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.bed import Bed, why_not


@pytest.fixture(scope="module")
def bed(nvml_library: str) -> Iterator[Bed]:
    """Return three hosts with four fake GPUs each; skip where there can be none, fail where there must."""
    require_bed()
    with Bed(hosts=3, library=nvml_library) as bed:
        yield bed


def require_bed() -> None:
    """Skip a test where namespaces cannot be had, but fail it where all must be tested."""
    reason = why_not()
    if reason is None:
        return
    if os.environ.get("CI") and os.getuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)
