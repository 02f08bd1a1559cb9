from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from patience import until
from stoker.gpus.driver import GpuProcess
from stoker.gpus.process_users import look_up


def test_a_process_of_ours_is_known_by_user_and_command() -> None:
    user = look_up(GpuProcess(os.getpid(), 42))

    assert user is not None
    assert user.is_visible
    assert user.user == pwd.getpwuid(os.getuid()).pw_name
    assert user.command is not None
    assert sys.executable.rsplit("/", 1)[-1] in user.command
    assert user.mem_bytes == 42


def test_a_pid_outside_our_namespace_has_no_name() -> None:
    user = look_up(GpuProcess(1 << 30, None))

    assert user is not None
    assert not user.is_visible
    assert (user.user, user.command, user.mem_bytes) == (None, None, None)


def test_a_zombie_uses_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert look_up(GpuProcess(process.pid, 42)) is None


def test_a_command_line_is_cut_to_printable_text() -> None:
    name = "\x1b[2Jtrain\nstoker: job 1 is done\x07" + "x" * 5000
    with subprocess.Popen([name, "600"], executable="/bin/sleep") as process:
        path = f"/proc/{process.pid}/cmdline"
        until(lambda: "600" in Path(path).read_text(), "its words are in the process table")
        user = look_up(GpuProcess(process.pid, 42))
        process.kill()

    assert user is not None
    assert user.command is not None
    assert user.command.isprintable()
    assert user.command.startswith("[2Jtrainstoker: job 1 is done")
    assert len(user.command) == 1000
