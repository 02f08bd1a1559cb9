"""Interactive jobs on real ptys: keys, signals, sizes, exit codes, limits and what is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.daemon_fixture import Queue

SHELL = ("shell", "--shell", "sh")

FAKE_JUPYTER = f"""#!{sys.executable}
import http.server, json, os, sys, time
from datetime import datetime, timezone
port = int(next(a for a in sys.argv if a.startswith("--port=")).split("=")[1])
token = open(os.environ["JUPYTER_TOKEN_FILE"]).read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = token in (self.headers.get("Authorization") or "") or token in self.path
        self.send_response(200 if good else 403)
        self.end_headers()
        now = datetime.fromtimestamp(START, timezone.utc).isoformat().replace("+00:00", "Z")
        self.wfile.write(json.dumps(dict(last_activity=now)).encode() if good else b"")
    def log_message(self, *_details): pass
START = time.time()
print("args", sys.argv[1:], flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class Session:
    """A stoker on a pty of the test; its modes and size can be looked at and changed."""

    def __init__(self, queue: Queue, *words: str, env: dict[str, str] | None = None) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.theirs)
        self.text = ""
        self.process = queue.stoker.adopt(
            subprocess.Popen(
                [sys.executable, "-m", "stoker", *words],
                stdin=self.theirs,
                stdout=self.theirs,
                stderr=self.theirs,
                env={**queue.env, "PS1": "$ ", "TERM": "xterm", **(env or {})},
                cwd=queue.work,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def read_until(self, text: str, after: str = "") -> None:
        """Read until a text is shown, after another one."""
        while text not in self.text.partition(after)[2] if after else text not in self.text:
            assert select.select([self.ours], [], [], PATIENCE_S)[0], self.text
            self.text += os.read(self.ours, 65536).decode(errors="replace")

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.theirs)[3] & (
            termios.ECHO | termios.ICANON | termios.ISIG
        )

    def end(self) -> int:
        """Wait for the end, reading what is shown; the exit code."""
        while self.process.poll() is None:
            if select.select([self.ours], [], [], 0.02)[0]:
                self.text += os.read(self.ours, 65536).decode(errors="replace")
        while select.select([self.ours], [], [], 0)[0]:
            self.text += os.read(self.ours, 65536).decode(errors="replace")
        return self.process.returncode

    def close(self) -> None:
        for fd in (self.ours, self.theirs):
            with contextlib.suppress(OSError):
                os.close(fd)


@contextlib.contextmanager
def session(queue: Queue, *words: str, env: dict[str, str] | None = None) -> Iterator[Session]:
    found = Session(queue, *words, env=env)
    try:
        yield found
    finally:
        found.close()


def only_job(queue: Queue) -> dict[str, Any]:
    [job] = queue.ls().values()
    return job


def until_state(queue: Queue, job: int, state: str) -> dict[str, Any]:
    queue.until(lambda: queue.show(job)["state"] == state, f"job {job} is {state}")
    return queue.show(job)


def test_a_shell_has_a_terminal_a_gpu_and_an_exit_code(queue: Queue) -> None:
    with session(queue, *SHELL, "--for", "1h") as shell:
        shell.type("test -t 0 && echo gpu=$CUDA_VISIBLE_DEVICES job=$STOKER_JOB_ID\n")
        shell.read_until("gpu=0 job=1")
        job = until_state(queue, 1, "running")  # the terminal is a moment faster
        assert (job["name"], only_job(queue)["slots"]) == ("shell", "0")
        assert queue.show(1)["timeout_s"] == 3600
        assert shell.is_raw()
        shell.type("stty size; echo size\n")
        shell.read_until("30 100")
        shell.resize(41, 123)
        shell.type("until test \"$(stty size)\" = '41 123'; do :; done; echo resi''zed\n")
        shell.read_until("resized")
        shell.type("sh -c \"echo wai''ting; exec cat\"\n")
        shell.read_until("waiting")
        shell.type("\x03")  # it ends cat, not the session
        shell.read_until("$ ", after="^C")  # the shell discards what is typed before
        shell.type("echo after=$?\n")
        shell.read_until("after=130")
        shell.type("exit 7\n")
        assert shell.end() == 7
        assert shell.is_restored()
    ended = until_state(queue, 1, "failed")
    assert (ended["exit_code"], ended["reason"]) == (7, "exit 7")
    assert "gpu=0 job=1" in queue.ok("log", "1")
    assert os.listdir(queue.home / "terminals") == []


@pytest.mark.parametrize(
    ("command", "code", "state"),
    [
        (("true",), 0, "done"),
        (("sh", "-c", "exit 3"), 3, "failed"),
        (("sh", "-c", "kill -9 $$"), 137, "failed"),
        (("no-such-program",), 127, "failed"),
    ],
)
def test_the_exit_code_of_a_command_is_passed_on(
    queue: Queue, command: tuple[str, ...], code: int, state: str
) -> None:
    with session(queue, "run", "--pty", "--", *command) as run:
        assert run.end() == code, run.text
        assert run.is_restored()
    until_state(queue, 1, state)


def test_output_before_the_end_is_complete(queue: Queue) -> None:
    script = "import sys; sys.stdout.write('x' * 200_000 + 'END')"
    with session(queue, "run", "--pty", "--", sys.executable, "-c", script) as run:
        assert run.end() == 0
        assert run.text.count("x") == 200_000
        assert "END" in run.text
    assert queue.ok("log", "1").count("x") == 200_000


def test_a_session_survives_a_killed_daemon(queue: Queue) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        queue.kill_daemon()
        shell.type("echo st''ill here\n")
        shell.read_until("still here")
        shell.type("exit 5\n")
        assert shell.end() == 5
        assert shell.is_restored()
    until_state(queue, 1, "failed")


def test_a_killed_process_of_the_job_restores_the_terminal(queue: Queue) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        os.kill(queue.until_running(1), signal.SIGKILL)
        assert shell.end() == 137
        assert shell.is_restored()
        assert "the connection to job 1 broke" in shell.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_client_restores_the_terminal_and_ends_the_job(
    queue: Queue, number: signal.Signals
) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        os.kill(shell.process.pid, number)
        assert shell.end() == 128 + number
        assert shell.is_restored()
    queue.until(lambda: only_job(queue)["ended_at"], "the job has ended")


def test_a_killed_client_hangs_up_the_shell_and_its_children(queue: Queue) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("sleep 1000 & echo chi''ld=$!.\n")
        shell.read_until("child=")
        shell.read_until(".\r\n")
        child = int(shell.text.rpartition("child=")[2].partition(".")[0])
        shell.process.kill()
        shell.process.wait()
    queue.until(lambda: only_job(queue)["ended_at"], "the job has ended")
    assert not queue.stoker.is_alive(child)


def test_the_time_limit_ends_a_session_with_its_reason(queue: Queue) -> None:
    with session(queue, *SHELL, "--for", "1s") as shell:
        assert shell.end() == 129
        assert shell.is_restored()
        assert "job 1 was ended: over the time limit of 1s" in shell.text


def test_stoker_kill_ends_a_session(queue: Queue) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        queue.ok("kill", "shell")
        assert shell.end() == 129
        assert "job 1 was ended: killed by request" in shell.text


def test_an_idle_session_is_warned_and_ended(queue: Queue) -> None:
    with session(queue, *SHELL, "-g", "0", "--idle", "2s") as shell:
        shell.read_until("job 1 is idle")
        assert shell.end() == 129
        assert shell.text.index("press a key") < shell.text.index("job 1 was ended: idle for 2s")
    assert until_state(queue, 1, "killed")["reason"] == "idle for 2s: no GPU use and no typing"


def test_a_session_whose_gpu_computes_is_not_idle(queue: Queue) -> None:
    train = f"{sys.executable} -m stoker.testing.train --steps 1 --mem 1G --seconds 1000"
    with session(queue, *SHELL, "--idle", "5s") as shell:
        shell.type(f"{train} & echo chi''ld=$!.\n")
        shell.read_until(".\r\n", after="child=")
        child = int(shell.text.rpartition("child=")[2].partition(".")[0])
        shell.read_until("$ ", after="child=")

        def samples() -> int:
            use = queue.show(1)["attempts"][0]["gpu_use"]
            return use["samples"] if use is not None else 0

        # One sample a second: the GPU has computed for longer than the shell may be idle.
        queue.until(lambda: samples() > 8, "the GPU was sampled")
        assert queue.show(1)["state"] == "running"
        assert not select.select([shell.ours], [], [], 0)[0], "a warning was shown"
        shell.type(f"kill {child}\n")
        assert shell.end() == 129
        assert "job 1 was ended: idle for 5s: no GPU use and no typing" in shell.text


def test_a_job_whose_client_was_killed_ends_when_it_starts(queue: Queue) -> None:
    blocker = queue.add("-g", "2", "sleep", "1000")
    queue.until_running(blocker)
    with session(queue, *SHELL) as shell:
        shell.read_until("job 2 waits")
        shell.process.kill()
        shell.process.wait()
    queue.ok("kill", str(blocker))
    assert until_state(queue, 2, "failed")["exit_code"] == 129
    assert "no terminal is connected" in queue.ok("log", "2")
    assert os.listdir(queue.home / "terminals") == []


def test_the_sockets_of_a_session_are_for_their_owner_alone(queue: Queue) -> None:
    with session(queue, *SHELL) as shell:
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        folder = queue.home / "terminals"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        [control] = folder.iterdir()
        assert (control.name, stat.S_IMODE(control.stat().st_mode)) == ("1.1", 0o600)
        shell.type("exit\n")
        assert shell.end() == 0


def test_a_waiting_session_says_why_and_ctrl_c_cancels_it(queue: Queue) -> None:
    blocker = queue.add("-g", "2", "sleep", "1000")
    queue.until_running(blocker)
    with session(queue, *SHELL) as shell:
        shell.read_until("job 2 waits for 1 GPU")
        shell.type("\x03")
        assert shell.end() == 130
    assert until_state(queue, 2, "killed")["reason"] == "killed by request"
    assert os.listdir(queue.home / "terminals") == []


def test_a_session_starts_before_other_waiting_jobs(queue: Queue) -> None:
    blocker = queue.add("-g", "2", "sleep", "1000")
    queue.until_running(blocker)
    other = queue.add("-g", "2", "true")
    with session(queue, *SHELL) as shell:
        shell.read_until("job 3 waits")
        queue.ok("kill", str(blocker))
        shell.type("echo rea''dy\n")
        shell.read_until("ready")
        assert queue.show(other)["state"] == "waiting"
        shell.type("exit\n")
        assert shell.end() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("shell",),
            "standard input is no terminal (ssh needs -t): without one write a command: stoker add",
        ),
        (("run", "--pty", "--", "true"), "standard input is no terminal"),
        (("run", "--pty"), "no command was given: stoker run --pty -- python train.py"),
        (("jupyter",), "Jupyter is not installed in your Python: pip install jupyterlab"),
    ],
)
def test_bad_input_is_one_line(idle_queue: Queue, words: tuple[str, ...], message: str) -> None:
    ended = idle_queue(*words, env={**idle_queue.env, "PATH": "/usr/bin:/bin"})
    assert ended.code != 0
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_jupyter_prints_a_link_with_a_secret_token(queue: Queue) -> None:
    program = queue.work / "bin" / "jupyter-lab"
    program.parent.mkdir()
    program.write_text(FAKE_JUPYTER)
    program.chmod(0o755)
    ended = queue(
        "jupyter", "--", "--extra", env={**queue.env, "PATH": f"{program.parent}:/usr/bin:/bin"}
    )
    link = ended.out.strip()
    assert ended.code == 0, ended
    with urllib.request.urlopen(link, timeout=PATIENCE_S) as answer:
        assert answer.status == 200
    token = link.partition("token=")[2]
    token_file = queue.home / "terminals" / "1.1.token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert token_file.read_text() == token
    assert token not in queue.ok("log", "1")
    assert "--extra" in queue.ok("log", "1")
    assert token not in json.dumps(queue.show(1))
    assert only_job(queue)["name"] == "jupyter"
    queue.ok("kill", "jupyter")
    until_state(queue, 1, "killed")
    queue.until(lambda: os.listdir(queue.home / "terminals") == [], "the token is removed")


def test_a_jupyter_that_fails_is_reported(queue: Queue) -> None:
    program = queue.work / "bin" / "jupyter-lab"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no notebook today\nexit 4\n")
    program.chmod(0o755)
    ended = queue("jupyter", env={**queue.env, "PATH": f"{program.parent}:/usr/bin:/bin"})
    assert ended.code == 1
    assert "Jupyter did not start: exit 4: no notebook today; see: stoker log 1" in ended.err
    assert "no notebook today" in queue.ok("log", "1")
