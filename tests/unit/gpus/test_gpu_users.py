from __future__ import annotations

import os
import pwd
import subprocess
import sys

from stoker.gpus.nvml import GpuProcess
from stoker.gpus.users import look_up


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


def test_a_process_that_only_waits_to_be_reaped_uses_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert look_up(GpuProcess(process.pid, 42)) is None
