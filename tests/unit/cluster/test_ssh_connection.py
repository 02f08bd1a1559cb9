"""A connection through an `ssh` that is a script: what the head does if the other end misbehaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.cluster.ssh.connection import SshConnection
from stoker.errors import StokerError


@pytest.fixture
def no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ssh` read nothing, and end only if it is killed."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\ncase "$*" in *"-O exit"*) exit;; esac\nexec sleep 1000\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("no_answer")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [0, 100])
def test_a_machine_that_reads_nothing_is_given_up_in_time(count: int) -> None:
    with (
        SshConnection("gpu1") as connection,
        pytest.raises(StokerError, match="gpu1 has not answered within 0s"),
    ):
        connection.run("true", [bytes(1 << 16)] * count, 0.2)
