"""Stoker is removed from the disk, as an upgrade does for a moment, while its processes run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import stoker
from fault.home import is_alive, kill
from patience import until
from stoker.api.endpoint import Media
from stoker.api.endpoints import ENDPOINTS
from stoker.client.client import Client
from stoker.client.transport import Connection
from stoker.errors import StokerError
from stoker.wire import Hold, Kill, NewJob, NewSetting, Release, Remove, Retry, Set, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault.home import Home
    from fault.work import Work

# A daemon of another copy of the package, which writes down what it imports.
DAEMON = """
import sys
sys.path.insert(0, sys.argv.pop(1))
record = open(sys.argv.pop(1), "a", buffering=1)

class Recorder:
    def find_spec(self, name, path=None, target=None):
        record.write(name + "\\n")

sys.meta_path.insert(0, Recorder())
from stoker.daemon import main, preload
import_all = preload._import_all
preload._import_all = lambda: (import_all(), record.write("all\\n"))
sys.exit(main.main())
"""
ALL = "all"  # what it has written when it has imported everything that it may need


class Removed:
    """A daemon whose package can be removed."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.package = folder / "package"
        shutil.copytree(Path(stoker.__file__).parent, self.package / "stoker")
        self._record = folder / "imported"
        reader, writer = os.pipe()
        with open(home.folder / "daemon.log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", DAEMON, str(self.package), str(self._record)),
                    *("--ready-fd", str(writer), "--gpus", "0,1"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "STOKER_PART": "daemon"},
                pass_fds=[writer],
                start_new_session=True,
            )
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert file.read() == b"ready\n", home.log()

    def imported(self) -> list[str]:
        """All that the daemon has asked to import, in order."""
        return self._record.read_text().splitlines()

    def remove(self) -> None:
        """Remove the package, once the daemon has imported what it may need."""
        until(lambda: ALL in self.imported(), "the daemon has imported everything")
        shutil.rmtree(self.package)

    def imported_late(self) -> set[str]:
        """What the daemon has asked for since, and could not have had after an upgrade."""
        names = self.imported()
        late = {name.partition(".")[0] for name in names[names.index(ALL) + 1 :]}
        return late - {*sys.stdlib_module_names}


@pytest.fixture
def daemon(home: Home, tmp_path: Path) -> Iterator[Removed]:
    """Return a daemon whose package can be removed."""
    daemon = Removed(home, tmp_path)
    yield daemon
    kill(daemon.process.pid)
    daemon.process.wait()


def end(client: Client, work: Work, *commands: str) -> list[int | None]:
    """Run commands to their ends; their exit codes."""
    submission = work.submission([NewJob(command=command) for command in commands])
    (added,) = client.add(submission)
    [*client.wait()]
    return [client.show(job).exit_code for job in range(added.first, added.last + 1)]


def test_nothing_dies_and_every_verb_answers(home: Home, work: Work, daemon: Removed) -> None:
    go = work.folder / "go"
    with Client(home.path, restart=False) as client:
        wait = f"until [ -e {go} ]; do sleep 0.02; done; exit 5"
        (early,) = client.add(work.submission([NewJob(command=wait)]))
        until(lambda: home.state(early.first) == "running", "a job runs")
        (supervisor,) = home.supervisors()
        daemon.remove()
        go.touch()
        assert end(client, work, "exit 3", "true") == [3, 0]
        assert client.show(early.first).exit_code == 5
        fail_in_every_way(client, work)
        steer(client, work)
    ask_everything(home.path)

    assert daemon.process.poll() is None, home.log()[-3000:]
    assert is_alive(supervisor)
    assert not daemon.imported_late()
    with Client(home.path, restart=False) as client:
        assert end(client, work, "exit 4") == [4]


def fail_in_every_way(client: Client, work: Work) -> None:
    """Let jobs fail for every reason that is told apart."""
    texts = [
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "MemoryError",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp",
        "OSError: [Errno 28] No space left on device",
        "ModuleNotFoundError: No module named 'nothing'",
    ]
    codes = end(client, work, *(f"echo {json.dumps(text)}; exit 6" for text in texts))
    assert codes == [6] * len(texts)
    assert end(client, work, "kill -9 $$", "kill -SEGV $$") == [None, None]


def steer(client: Client, work: Work) -> None:
    """Use the verbs that change jobs; also a warm start and a script."""
    command = NewJob(command=[sys.executable, "-c", "print(1)"])
    warm = msgspec.structs.replace(work.submission([command]), warm=["json"])
    client.add(warm)
    script = NewJob(command="#!/bin/sh\nexit 0\n", script=True)
    client.add(work.submission([script]))
    (held,) = client.add(work.submission([NewJob(command="sleep 600")] * 3))
    ids = f"{held.first}-{held.last}"
    client.hold(Hold(ids=str(held.last)))
    client.release(Release(ids=str(held.last)))
    client.set(Set(ids=str(held.last), to=Settings(priority=3)))
    client.kill(Kill(ids=ids))
    [*client.wait()]
    client.retry(Retry(ids=str(held.first)))
    client.kill(Kill(ids=str(held.first)))
    [*client.wait()]
    client.rm(Remove(ids=ids))
    client.set_config(NewSetting(name="keep.days", value="80"))
    client.set_config(NewSetting(name="on-finish", value="true"))
    [*client.log(1)]


def ask_everything(home: str) -> None:
    """Ask for all that can be asked for; what needs another process, or a file, may be refused."""
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.media is Media.JSON:
            with Connection(home) as connection, suppress(StokerError):
                connection.request("GET", endpoint.path)
    for action in ("open", "close"):
        with Connection(home) as connection, suppress(StokerError):
            connection.request("POST", "/v1/web", json.dumps({"action": action}).encode())
