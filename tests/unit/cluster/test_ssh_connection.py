"""A connection through an `ssh` that is a script: what the head does if the other end misbehaves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cli.cluster_add import _open_all
from stoker.cluster.ssh.bundle import Bundle
from stoker.cluster.ssh.connection import SshConnection
from stoker.errors import StokerError

MakeSsh = Callable[[str], None]


@pytest.fixture
def make_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSsh:
    """Return a function that makes an `ssh` of a shell script."""

    def make(script: str) -> None:
        path = tmp_path / "ssh"
        path.write_text(f'#!/bin/sh\ncase "$*" in *"-O exit"*) exit;; esac\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [0, 100])
def test_a_machine_that_reads_nothing_is_given_up_in_time(count: int, make_ssh: MakeSsh) -> None:
    make_ssh("exec sleep 1000")
    with (
        SshConnection("gpu1") as connection,
        pytest.raises(StokerError, match="gpu1 has not answered within 0s"),
    ):
        connection.run("true", [bytes(1 << 16)] * count, 0.2)


def test_of_several_machines_one_that_cannot_be_reached_does_not_stop_the_others(
    make_ssh: MakeSsh, capsys: pytest.CaptureFixture[str]
) -> None:
    # A machine that is this one: its command is the last word.
    here = 'for word; do :; done; exec sh -c "$word"'
    make_ssh(
        f'case "$*" in *gone*) echo "ssh: connect: No route to host" >&2; exit 255;; esac; {here}'
    )
    with contextlib.ExitStack() as stack:
        opened = _open_all(stack, ["gone", "gpu1"], sys.executable)
        assert [connection.target for connection, _ in opened] == ["gpu1"]
        assert "No route to host" in capsys.readouterr().err
        with pytest.raises(StokerError, match="No route to host"):
            _open_all(stack, ["gone"], sys.executable)


def test_a_file_of_a_package_that_has_vanished_is_named_in_one_line(tmp_path: Path) -> None:
    bundle = Bundle("1f", {"ray/a.py": str(tmp_path / "a.py")}, 0)
    with pytest.raises(StokerError, match=r"cannot read .*/a\.py \(No such file or directory\)"):
        list(bundle.chunks())
