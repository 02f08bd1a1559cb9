from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from patience import PATIENCE_S
from stoker.client.autostart import ensure_daemon, start_daemon
from stoker.client.node_role import head_of
from stoker.client.session import Session
from stoker.client.transport import Connection, NoDaemonError
from stoker.errors import StokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.client.conftest import FakeDaemon


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if entry)


def descriptors_of(pid: int) -> dict[str, str]:
    with os.scandir(f"/proc/{pid}/fd") as found:
        links = {}
        for each in found:
            with contextlib.suppress(FileNotFoundError):
                links[each.name] = os.readlink(each.path)
        return links


def wait_until_gone(home: str) -> NoDaemonError:
    while True:
        try:
            Connection(home).close()
        except NoDaemonError as error:
            return error


def test_a_daemon_is_started_only_if_none_runs(fake_daemon: FakeDaemon) -> None:
    home = str(fake_daemon.home)
    ensure_daemon(home).close()
    ensure_daemon(home).close()
    assert len(fake_daemon.pids()) == 1


def test_a_daemon_that_died_is_started_again(fake_daemon: FakeDaemon) -> None:
    home = str(fake_daemon.home)
    ensure_daemon(home).close()
    fake_daemon.kill()
    assert wait_until_gone(home).died
    with pytest.raises(NoDaemonError):
        Session(home, restart=False).get("/v1/status")
    session = Session(home)
    session.wait_for_daemon()
    session.close()
    assert len(fake_daemon.pids()) == 2


def test_a_daemon_that_never_ran_is_started_only_on_request(fake_daemon: FakeDaemon) -> None:
    session = Session(str(fake_daemon.home))
    with pytest.raises(NoDaemonError) as caught:
        session.get("/v1/status")
    assert not caught.value.died
    assert fake_daemon.pids() == []


def test_a_started_daemon_has_its_own_session_and_no_inherited_files(
    fake_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, adopt_orphans: Callable[[bool], None]
) -> None:
    adopt_orphans(False)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    for name in ("STOKER_COOKIE", "STOKER_JOB_ID", "STOKER_ATTEMPT", "STOKER_CHECKPOINT_DIR"):
        monkeypatch.setenv(name, "of a job")
    ensure_daemon(str(fake_daemon.home)).close()
    os.close(writer)
    assert os.read(reader, 1) == b"", "the daemon keeps a descriptor of its starter open"
    os.close(reader)
    [pid] = fake_daemon.pids()
    environment = environment_of(pid)
    assert environment["STOKER_PART"] == "daemon"
    assert environment["STOKER_HOME"] == str(fake_daemon.home)
    assert not {"STOKER_COOKIE", "STOKER_JOB_ID", "STOKER_ATTEMPT"} & environment.keys()
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    links = descriptors_of(pid)
    assert links["0"] == "/dev/null"
    assert links["1"] == links["2"] == f"{fake_daemon.home}/daemon.log"
    deadline = (
        time.monotonic() + PATIENCE_S
    )  # it closes the pipe on which it said that it was ready
    while "pipe" in "".join(descriptors_of(pid).values()):
        assert time.monotonic() < deadline
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status


def test_the_daemons_output_is_appended_to_a_private_log(fake_daemon: FakeDaemon) -> None:
    log = fake_daemon.home / "daemon.log"
    log.write_text("before\n")
    log.chmod(0o600)
    ensure_daemon(str(fake_daemon.home)).close()
    assert log.read_text() == "before\nup\n"
    assert stat.S_IMODE((fake_daemon.home / "start.lock").stat().st_mode) == 0o600


def test_concurrent_starts_reach_one_daemon(fake_daemon: FakeDaemon) -> None:
    program = (
        "import sys, stoker.client.autostart as a, stoker.interpreter as i; i._ROOT = sys.argv[2];"
        "a.ensure_daemon(sys.argv[1]).close()"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(fake_daemon.home), str(fake_daemon.folder)]
        )
        for _ in range(6)
    ]
    assert [starter.wait(30) for starter in starters] == [0] * 6
    assert len(fake_daemon.pids()) == 1


def test_a_daemon_does_not_keep_its_starters_pipe_open(fake_daemon: FakeDaemon) -> None:
    program = (
        "import sys, stoker.client.autostart as a, stoker.interpreter as i; i._ROOT = sys.argv[2];"
        "a.ensure_daemon(sys.argv[1]).close(); print('started')"
    )
    words = [sys.executable, "-c", program, str(fake_daemon.home), str(fake_daemon.folder)]
    ended = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout == b"started\n"
    assert Path(f"/proc/{fake_daemon.pids()[0]}").exists()


def test_a_failed_start_reports_its_reason(
    fake_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_HOW", "error")
    begun = time.monotonic()
    with pytest.raises(StokerError, match="could not start: the database is broken"):
        ensure_daemon(str(fake_daemon.home))
    assert time.monotonic() - begun < 5


def test_a_start_that_ends_silently_is_reported(
    fake_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_HOW", "die")
    with pytest.raises(StokerError, match=r"ended before it was up .*daemon\.log"):
        ensure_daemon(str(fake_daemon.home))


def test_arguments_are_passed_on_and_a_second_start_is_refused(fake_daemon: FakeDaemon) -> None:
    start_daemon(str(fake_daemon.home), ["--gpus", "0,1"])
    assert (fake_daemon.home / "words").read_text().split()[:2] == ["--gpus", "0,1"]
    with pytest.raises(StokerError, match="runs already"):
        start_daemon(str(fake_daemon.home), [])


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match=r"start\.lock"):
        ensure_daemon(str(tmp_path / "missing"))


@pytest.mark.parametrize("role", ["head", "node"])
def test_a_node_of_a_cluster_gets_no_queue_of_its_own_by_itself(
    fake_daemon: FakeDaemon, role: str
) -> None:
    folder = fake_daemon.home / "cluster"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"role": role, "address": "10.0.0.1"}))
    home = str(fake_daemon.home)
    if role == "head":
        ensure_daemon(home).close()
        return
    for ask in (lambda: ensure_daemon(home), lambda: Session(home).get("/v1/status")):
        with pytest.raises(NoDaemonError, match=r"whose queue is on 10\.0\.0\.1: run stoker there"):
            ask()
    assert fake_daemon.pids() == []
    start_daemon(home)
    fake_daemon.kill()
    assert wait_until_gone(home).died
    ensure_daemon(home).close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"role": "node"}'])
def test_damaged_settings_of_a_cluster_are_left_to_the_cluster_verb(
    fake_daemon: FakeDaemon, text: str
) -> None:
    folder = fake_daemon.home / "cluster"
    folder.mkdir()
    (folder / "settings.json").write_text(text)
    assert head_of(str(fake_daemon.home)) is None
