"""Scripts that use Stoker from Python, as a user would: files of their own, run to their end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Ended, Stoker


class Scripts:
    """Writes and runs scripts in a test's own home, on the fake GPUs 0 to 3."""

    def __init__(self, stoker: Stoker) -> None:
        self.stoker = stoker
        self.work = stoker.work

    def start(self, text: str, *flags: str) -> subprocess.Popen[bytes]:
        """Start a script."""
        path = self.work / "script.py"
        path.write_text(textwrap.dedent(text))
        return self.stoker.adopt(
            subprocess.Popen(
                [sys.executable, *flags, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.stoker.env,
                cwd=self.work,
            )
        )

    def run(self, text: str, *flags: str) -> Ended:
        """Run a script to its end."""
        return self.stoker.end(self.start(text, *flags))

    def prompt(self, text: str) -> Ended:
        """Run lines that come from standard input, as they do at a prompt: there is no file."""
        process = self.stoker.adopt(
            subprocess.Popen(
                [sys.executable, "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.stoker.env,
                cwd=self.work,
            )
        )
        return self.stoker.end(process, text)

    def ok(self, text: str, *flags: str) -> str:
        """What a script prints, which must succeed and say nothing on standard error."""
        ended = self.run(text, *flags)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended.out
