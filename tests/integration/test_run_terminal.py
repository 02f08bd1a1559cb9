from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Stoker

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A stoker on a terminal of 100 columns, and all that was ever shown there."""

    def __init__(self, stoker: Stoker, *words: str | bytes, lines: str | bytes) -> None:
        name = stoker.file("jobs.txt", lines)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stoker", "run", name, "--gpus", "0,1", *words],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**stoker.env, "TERM": "xterm-256color"},
            cwd=stoker.work,
        )
        os.close(theirs)
        self.raw = ""

    def read_until(self, text: str) -> None:
        while text not in self.plain:
            assert self._read(), f"{text!r} was never shown in {self.raw!r}"

    def read_all(self) -> int:
        while self._read():
            pass
        return self.process.wait(timeout=30)

    @property
    def plain(self) -> str:
        return COLOURS.sub("", self.raw).replace("\r\n", "\n")

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # how Linux says that the other end of a terminal is closed
            return False
        self.raw += data.decode(errors="replace")
        return True

    def echoes_controls(self) -> bool:
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHOCTL)

    def close(self) -> None:
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)


@contextlib.contextmanager
def shown(stoker: Stoker, *words: str | bytes, lines: str | bytes) -> Iterator[Terminal]:
    terminal = Terminal(stoker, *words, lines=lines)
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_live_view_shows_what_runs_on_each_gpu(stoker: Stoker) -> None:
    lines = "true\nuntil [ -e go ]; do sleep 0.01; done # my job\ntrue\n"
    with shown(stoker, lines=lines) as terminal:
        terminal.read_until("# my job")
        terminal.read_until("2/3")
        stoker.file("go", "")
        code = terminal.read_all()

    assert code == 0
    for word in ("GPU", "MEMORY", "UTIL", "ETA", "1 running", "idle", "0.0/8 GiB"):
        assert word in terminal.plain
    assert "3 done, in " in terminal.plain.splitlines()[-1]


def test_the_last_line_tells_where_the_output_of_successes_is(stoker: Stoker) -> None:
    with shown(stoker, lines="echo one\n") as terminal:
        assert terminal.read_all() == 0
    path = terminal.plain.split("(output: ")[1].split(")")[0]
    with open(path) as file:
        assert file.read() == "one\n"
    with shown(stoker, lines="echo one\necho two\n") as terminal:
        assert terminal.read_all() == 0
    folder = terminal.plain.split("(output: ")[1].split(")")[0]
    assert sorted(os.listdir(folder)) == ["1.1.log", "2.1.log"]
    with shown(stoker, "--logs", "mine", lines="echo one\n") as terminal:
        assert terminal.read_all() == 0
    assert "output:" not in terminal.plain


def test_output_is_kept_in_logs_and_out_of_the_view(stoker: Stoker) -> None:
    with shown(stoker, lines="echo a secret; echo to nobody >&2\n") as terminal:
        code = terminal.read_all()

    logs = {path.name: path.read_text() for path in stoker.folders()[0].glob("logs/0/*")}
    assert (code, logs) == (0, {"1.1.log": "a secret\nto nobody\n"})
    assert "a secret" not in terminal.plain.replace("echo a secret", "")


def test_the_last_lines_of_a_failure_are_shown_with_its_reason_and_its_log(stoker: Stoker) -> None:
    with shown(stoker, lines="seq 1 100; echo last words; exit 7\ntrue\n") as terminal:
        code = terminal.read_all()

    (log,) = stoker.folders()[0].glob("logs/0/1.1.log")
    assert code == 1
    assert "✗ 1 exit 7" in terminal.plain
    assert "  │ 100\n" in terminal.plain
    assert "  │ last words\n" in terminal.plain
    assert "  │ 90\n" not in terminal.plain
    assert f"log: {log}" in terminal.plain
    assert "1 done, 1 failed" in terminal.plain


def test_named_logs_are_kept_where_they_were_asked_for(stoker: Stoker) -> None:
    with shown(stoker, "--logs", "logs [x]", lines="echo a; false\n") as terminal:
        terminal.read_all()

    assert (stoker.work / "logs [x]" / "1.log").read_text() == "a\n"
    assert f"log: {stoker.work}/logs [x]/1.log" in terminal.plain


def test_a_folder_whose_name_looks_like_markup_is_no_trouble(stoker: Stoker) -> None:
    with shown(stoker, "--logs", "logs[/red]", lines="echo a; false\n") as terminal:
        code = terminal.read_all()

    assert code == 1
    assert "Traceback" not in terminal.plain
    assert "logs[/red]/1.log" in terminal.plain


def test_a_command_that_looks_like_markup_is_shown_as_it_is(stoker: Stoker) -> None:
    with shown(stoker, lines="false [bold]x[/bold] [/nothing] \\\\\n") as terminal:
        code = terminal.read_all()

    assert code == 1
    assert "false [bold]x[/bold] [/nothing] \\\\\n" in terminal.plain


# What a hostile log could hold, and what a terminal would do if it got through.
HOSTILE = {
    "clears the screen": "\\033[2J",
    "moves the cursor": "\\033[10;10H",
    "sets the title": "\\033]0;owned\\007",
    "reaches for the clipboard": "\\033]52;c;b3duZWQ=\\033\\\\",
    "asks for an answer": "\\033[c\\033[6n\\005",
    "is an eight-bit control": "\\302\\2332J",
    "hides in a sequence that is taken out": "\\033[\\0072J",
    "hides in many that are taken out": "\\033[\\033[\\033[\\033[\\033[6J5J4J3J2J",
    "is not complete": "\\033[",
    "is only begun at the end": "\\033]0;",
    "rewrites the line": "good\\rbad",
    "goes back": "good\\b\\b\\b\\bbad",
}


@pytest.mark.parametrize("sequence", HOSTILE.values(), ids=HOSTILE.keys())
def test_of_a_jobs_escape_sequences_only_colours_reach_the_terminal(
    stoker: Stoker, sequence: str
) -> None:
    job = f"printf 'hostile {sequence} end\\n'; false\n"
    stoker.file("hostile.sh", job)
    with shown(stoker, lines="sh hostile.sh\n") as terminal:
        terminal.read_all()

    (line,) = [ln for ln in terminal.raw.replace("\r\n", "\n").split("\n") if "│ " in ln]
    after = COLOURS.sub("", line.partition("│ ")[2])
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", after), repr(after)


def test_colours_do_reach_the_terminal(stoker: Stoker) -> None:
    with shown(stoker, lines="printf '\\033[31mred\\033[0m plain\\n'; false\n") as terminal:
        terminal.read_all()

    assert re.search(r"\x1b\[31mred\x1b\[0m", terminal.raw)


def test_escape_sequences_in_a_command_do_not_reach_the_terminal(stoker: Stoker) -> None:
    hidden = b"\x1b[\x1b[\x1b[4J3J2J"
    with shown(stoker, lines=b"false " + hidden + b"\n") as terminal:
        terminal.read_all()

    line = terminal.raw.partition("✗ 1")[2].splitlines()[0]
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", line), repr(line)


def test_a_terminal_is_left_as_it_was_found(stoker: Stoker) -> None:
    with shown(stoker, lines="true\n") as terminal:
        terminal.read_all()

    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_ctrl_c_on_a_terminal_drains_and_says_so(stoker: Stoker) -> None:
    with shown(stoker, lines="until [ -e go ]; do sleep 0.01; done\n" * 3) as terminal:
        terminal.read_until("2 running")
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("2 still running, once more to kill them")
        stoker.file("go", "")
        code = terminal.read_all()

    assert code == 1
    assert "2 done, the rest was not started" in terminal.plain


def test_a_drain_says_what_is_left_and_the_terminal_echoes_no_ctrl_c(stoker: Stoker) -> None:
    wait = "touch begun; until [ -e go ]; do sleep 0.01; done\n"
    with shown(stoker, "--gpus", "0", lines=wait + "true\n" * 5) as terminal:
        stoker.until(lambda: (stoker.work / "begun").exists(), "the first command has begun")
        terminal.read_until("1 running")
        assert not terminal.echoes_controls()
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("draining: 1 left, 5 not started")
        stoker.file("go", "")
        terminal.read_all()
        assert terminal.echoes_controls()


def test_commands_are_cut_in_the_middle_so_that_rows_differ(stoker: Stoker) -> None:
    wait = "until [ -e go ]; do sleep 0.01; done"
    lines = "".join(f"{wait}; : {'x' * 200} --seed {seed}\n" for seed in (17, 18))
    with shown(stoker, lines=lines) as terminal:
        terminal.read_until("--seed 17")
        terminal.read_until("--seed 18")
        stoker.file("go", "")
        assert terminal.read_all() == 0


def test_in_the_background_of_a_shell_nothing_is_drawn(stoker: Stoker) -> None:
    stoker.file("jobs.txt", "true\n" * 3)
    ours, theirs = pty.openpty()
    own = f"{sys.executable} -m stoker run jobs.txt --gpus 0"
    # The first shell gets the terminal as its own; the second one has job control.
    process = subprocess.Popen(
        ["sh", "-c", f"exec 9<>{os.ttyname(theirs)}; exec bash -mc '{own} & wait $!'"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**stoker.env, "TERM": "xterm-256color"},
        cwd=stoker.work,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):
        while data := os.read(ours, 1 << 16):
            said += data
    os.close(ours)
    assert process.wait(timeout=30) == 0
    assert b"3 done, in " in said
    assert b"\x1b[2K" not in said
    assert b"MEMORY" not in said
