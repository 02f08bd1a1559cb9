"""Hosts for tests of clusters."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import pytest

from cluster.netns_hosts import Hosts, why_not
from cluster.slurm_fixture import why_not as why_no_slurm

# The last Python for which there are wheels.
_RAY_HAS = (3, 14)


@pytest.fixture(scope="session")
def ray() -> None:
    """Skip a test where Ray is not installed, but fail it where all must be tested."""
    require_ray()


def require_ray() -> None:
    """Skip a test where Ray is not installed; fail it in CI if Ray has a wheel for this Python."""
    if importlib.util.find_spec("ray") is not None:
        return
    reason = "Ray is not installed: pip install 'stoker[ray]'"
    if os.environ.get("CI") and sys.version_info[:2] <= _RAY_HAS:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def hosts(nvml_library: str) -> Iterator[Hosts]:
    """Return three hosts with four fake GPUs each; skip where there can be none, fail where there must."""
    require_hosts()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        yield hosts


def require_hosts() -> None:
    """Skip a test where namespaces cannot be had, but fail it where all must be tested."""
    reason = why_not()
    if reason is None:
        return
    if os.environ.get("CI") and os.getuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


def require_slurm() -> None:
    """Skip a test where Slurm is not installed, but fail it where all must be tested."""
    reason = why_no_slurm()
    if reason is None:
        return
    if os.environ.get("CI") and os.getuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)
