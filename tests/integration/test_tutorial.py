"""The tutorial does what it says: every file is written, every command run, every output compared."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from integration.doc_page import DOCS, DocPage, Step, pattern_of, steps_of
from patience import PATIENCE_S

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

TUTORIAL = DOCS / "tutorial" / "ten-minutes.md"


class TerminalPage(DocPage):
    """A page whose commands run on a terminal of their own."""

    def _is_true(self, step: Step) -> bool:
        shown = self._show(step.command)
        (self._work.parent / "output").write_text(shown)
        return step.output is None or is_shown(step.output, shown)

    def _show(self, command: str) -> str:
        """What stands on a terminal when a command has ended."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        process = subprocess.Popen(
            ["/bin/bash", "-c", command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**self._env, "TERM": "xterm", "NO_COLOR": "1"},
            cwd=self._work,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # how Linux says that the other end of a terminal is closed
            pass
        finally:
            os.close(ours)
        process.wait(timeout=PATIENCE_S)
        return screen_of(shown.decode())


def screen_of(text: str) -> str:
    """The lines that are left on a screen when all that was drawn over is gone."""
    lines = [""]
    at = 0
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", text):
        if piece == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif piece == "\x1b[1A":
            at = max(0, at - 1)
        elif piece == "\x1b[2K":
            lines[at] = ""
        elif piece and piece != "\r" and not piece.startswith("\x1b"):
            lines[at] += piece
    return "\n".join(lines)


def is_shown(expected: str, shown: str) -> bool:
    """Whether all lines of an output are shown, in their order.

    A terminal may show more between and behind them, and aligns the columns of tables otherwise.
    """
    rest = (" ".join(line.split()) for line in shown.splitlines())
    wanted = [" ".join(line.split()) for line in expected.splitlines() if line]
    return all(any(pattern_of(line).match(each) for each in rest) for line in wanted)


@pytest.mark.parametrize("kind", [DocPage, TerminalPage])
def test_every_line_of_the_tutorial_is_true(idle_queue: Queue, kind: type[DocPage]) -> None:
    with closing(kind(TUTORIAL, idle_queue.stoker)) as page:
        assert page.run_sessions() > 20


def test_a_false_line_would_be_noticed() -> None:
    assert pattern_of("1 done, in …\n").fullmatch("1 done, in 0.2s\n")
    assert not pattern_of("1 done, in …\n").fullmatch("2 done, in 0.2s\n")
    assert not pattern_of("").fullmatch("an unexpected word\n")
    with pytest.raises(AssertionError, match="begins with a command"):
        steps_of("no command\n")
    assert is_shown("1 done, in …\n", "a bar\n1 done, in 3s (output: x)\n")
    assert not is_shown("one\ntwo\n", "two\none\n")
    assert screen_of("0 done\x1b[32m\r\n\r\x1b[1A\x1b[2K1 done\r\n") == "1 done\n"


def test_a_command_may_go_on_in_the_next_line() -> None:
    assert steps_of("$ echo a \\\n  b\na b\n$ true\n") == [
        Step("echo a \\\n  b", "a b\n"),
        Step("true", ""),
    ]
