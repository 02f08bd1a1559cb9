from __future__ import annotations

import json
import os
import pty
import pwd
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAR_PID = 1 << 30
ME = pwd.getpwuid(os.getuid()).pw_name
COMMAND = [sys.executable, "-m", "stoker", "gpus"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))


def gpus(box: FakeGpus, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **box.env()}
    return subprocess.run([*COMMAND, *args], env=env, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("home")
def test_a_piped_table_shows_memory_utilisation_and_users(
    fake_gpus: Callable[..., FakeGpus],
) -> None:
    box = fake_gpus(2)
    box.use(os.getpid(), 0, 3 * GIB)
    box.use(FAR_PID, 1, GIB, host=True)

    ended = gpus(box)

    header, first, second = ended.stdout.splitlines()
    assert ended.returncode == 0
    assert header.split() == ["GPU", "NAME", "MEMORY", "UTIL", "USED", "BY", "HELD", "BY"]
    assert first.startswith("0 ")
    assert "3.0/8.0 GiB" in first
    assert "50%" in first
    assert f"{ME}: " in first
    assert f"pid {FAR_PID} outside this container (1.0 GiB)" in second


@pytest.mark.usefixtures("home")
def test_json_is_a_list_with_every_fact(fake_gpus: Callable[..., FakeGpus]) -> None:
    box = fake_gpus(2)
    box.use(os.getpid(), 0, 3 * GIB)
    box.lose(1)

    first, second = json.loads(gpus(box, "--json").stdout)

    assert first["uuid"] == box.gpus()[0].uuid
    assert first["mem_used_bytes"] == 3 * GIB
    assert [user["pid"] for user in first["users"]] == [os.getpid()]
    assert first["holder"] is None
    assert second["lost"]


@pytest.mark.usefixtures("home")
def test_the_holder_of_a_gpu_is_shown(fake_gpus: Callable[..., FakeGpus]) -> None:
    from stoker.gpus.lease import take

    box = fake_gpus(1)
    lease = take(box.gpus()[0].uuid, "stoker run")
    assert lease is not None

    shown = gpus(box)
    lease.release()

    assert f"{ME}: stoker run (pid {os.getpid()}, 0s)" in shown.stdout


@pytest.mark.usefixtures("home")
def test_without_a_gpu_there_is_one_clear_line_and_json_is_an_empty_list(
    fake_gpus: Callable[..., FakeGpus],
) -> None:
    box = fake_gpus(0)

    table, listed = gpus(box), gpus(box, "--json")

    assert (table.returncode, table.stdout) == (1, "")
    assert table.stderr == "stoker: no GPU found (NVML: lists none)\n"
    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])


@pytest.mark.usefixtures("home")
def test_on_a_terminal_the_table_fits_its_width(fake_gpus: Callable[..., FakeGpus]) -> None:
    box = fake_gpus(1)
    box.split(0, parts=2)
    env = {**os.environ, **box.env(), "COLUMNS": "60", "TERM": "xterm"}
    ours, theirs = pty.openpty()

    with subprocess.Popen(COMMAND, env=env, stdout=theirs) as process:
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
    os.close(ours)

    assert process.returncode == 0
    assert b"MIG-" in text
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()
    assert max(map(len, lines)) <= 60


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end of a terminal is closed
        return b""


@pytest.mark.usefixtures("home")
def test_the_topology_names_the_link_of_each_pair(fake_gpus: Callable[..., FakeGpus]) -> None:
    box = fake_gpus(3)
    box.join("pairs")
    assert [line.split() for line in gpus(box, "--topology").stdout.splitlines()] == [
        ["GPU", "0", "1", "2"],
        ["0", "-", "NVLink", "NUMA", "node"],
        ["1", "NVLink", "-", "NUMA", "node"],
        ["2", "NUMA", "node", "NUMA", "node", "-"],
    ]
    assert json.loads(gpus(box, "--topology", "--json").stdout) == [
        {"gpus": ["0", "1"], "link": "nvlink"},
        {"gpus": ["0", "2"], "link": "node"},
        {"gpus": ["1", "2"], "link": "node"},
    ]
    box.lose(1)
    assert "unknown" in gpus(box, "--topology").stdout


@pytest.mark.usefixtures("home")
def test_without_gpus_there_is_no_topology(fake_gpus: Callable[..., FakeGpus]) -> None:
    box = fake_gpus(0)
    ended = gpus(box, "--topology")
    assert ended.returncode == 1
    assert ended.stderr == "stoker: no links to show (NVML: lists no whole card)\n"
    assert gpus(box, "--topology", "--json").stdout == "[]\n"
    assert "changes nothing" in gpus(box, "--topology", "drain", "0").stderr
