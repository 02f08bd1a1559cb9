from __future__ import annotations

import contextlib
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
from stoker.client.session import Session
from stoker.client.transport import Connection, NoDaemonError
from stoker.errors import StokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.client.conftest import Stand


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


def test_a_daemon_is_started_only_if_none_runs(stand: Stand) -> None:
    home = str(stand.home)
    ensure_daemon(home).close()
    ensure_daemon(home).close()
    assert len(stand.pids()) == 1


def test_a_daemon_that_died_is_started_again(stand: Stand) -> None:
    home = str(stand.home)
    ensure_daemon(home).close()
    stand.kill()
    assert wait_until_gone(home).died
    with pytest.raises(NoDaemonError):
        Session(home, restart=False).get("/v1/status")
    session = Session(home)
    session.wait_for_daemon()
    session.close()
    assert len(stand.pids()) == 2


def test_a_daemon_that_never_ran_is_started_only_on_request(stand: Stand) -> None:
    session = Session(str(stand.home))
    with pytest.raises(NoDaemonError) as caught:
        session.get("/v1/status")
    assert not caught.value.died
    assert stand.pids() == []


def test_a_started_daemon_has_its_own_session_and_no_inherited_files(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, adopt_orphans: Callable[[bool], None]
) -> None:
    adopt_orphans(False)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    for name in ("STOKER_COOKIE", "STOKER_JOB_ID", "STOKER_ATTEMPT", "STOKER_CHECKPOINT_DIR"):
        monkeypatch.setenv(name, "of a job")
    ensure_daemon(str(stand.home)).close()
    os.close(writer)
    assert os.read(reader, 1) == b"", "the daemon holds a descriptor of whoever started it"
    os.close(reader)
    [pid] = stand.pids()
    environment = environment_of(pid)
    assert environment["STOKER_PART"] == "daemon"
    assert environment["STOKER_HOME"] == str(stand.home)
    assert not {"STOKER_COOKIE", "STOKER_JOB_ID", "STOKER_ATTEMPT"} & environment.keys()
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    links = descriptors_of(pid)
    assert links["0"] == "/dev/null"
    assert links["1"] == links["2"] == f"{stand.home}/daemon.log"
    deadline = (
        time.monotonic() + PATIENCE_S
    )  # it closes the pipe on which it said that it was ready
    while "pipe" in "".join(descriptors_of(pid).values()):
        assert time.monotonic() < deadline
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status


def test_the_daemons_output_is_appended_to_a_private_log(stand: Stand) -> None:
    log = stand.home / "daemon.log"
    log.write_text("before\n")
    log.chmod(0o600)
    ensure_daemon(str(stand.home)).close()
    assert log.read_text() == "before\nup\n"
    assert stat.S_IMODE((stand.home / "start.lock").stat().st_mode) == 0o600


def test_concurrent_starts_reach_one_daemon(stand: Stand) -> None:
    program = (
        "import sys, stoker.client.autostart as a, stoker.interpreter as i; i._ROOT = sys.argv[2];"
        "a.ensure_daemon(sys.argv[1]).close()"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", program, str(stand.home), str(stand.folder)])
        for _ in range(6)
    ]
    assert [starter.wait(30) for starter in starters] == [0] * 6
    assert len(stand.pids()) == 1


def test_a_daemon_does_not_keep_its_starters_pipe_open(stand: Stand) -> None:
    program = (
        "import sys, stoker.client.autostart as a, stoker.interpreter as i; i._ROOT = sys.argv[2];"
        "a.ensure_daemon(sys.argv[1]).close(); print('started')"
    )
    words = [sys.executable, "-c", program, str(stand.home), str(stand.folder)]
    ended = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout == b"started\n"
    assert Path(f"/proc/{stand.pids()[0]}").exists()


def test_a_failed_start_reports_its_reason(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAEMON_HOW", "error")
    begun = time.monotonic()
    with pytest.raises(StokerError, match="could not start: the database is broken"):
        ensure_daemon(str(stand.home))
    assert time.monotonic() - begun < 5


def test_a_start_that_ends_silently_is_reported(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_HOW", "die")
    with pytest.raises(StokerError, match=r"ended before it was up .*daemon\.log"):
        ensure_daemon(str(stand.home))


def test_arguments_are_passed_on_and_a_second_start_is_refused(stand: Stand) -> None:
    start_daemon(str(stand.home), ["--gpus", "0,1"])
    assert (stand.home / "words").read_text().split()[:2] == ["--gpus", "0,1"]
    with pytest.raises(StokerError, match="runs already"):
        start_daemon(str(stand.home), [])


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match=r"start\.lock"):
        ensure_daemon(str(tmp_path / "missing"))
