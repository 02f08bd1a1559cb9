"""Executes a page of the docs: writes its files, runs its commands, compares the outputs that it shows.

- A `python` block that begins with `# NAME`, and any block with a name after its language, is a file.
- A `console` block is a session: `$ COMMAND`, then the output; `…` stands for anything within a line. A
  command that ends in a backslash goes on in the next line. Of files and logs the output is waited for, and a
  command in the background until it follows the files that it names.
- A command in a column of a table runs on its own and must succeed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patience import until

if TYPE_CHECKING:
    from conftest import Stoker

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")
_CODES = re.compile(r"``.+?``|`[^`\n]+`")
PROGRAMS = (
    *("stoker", "simple_gpu_scheduler", "simple_hypersearch", "python", "curl", "tail", "nohup"),
    *("gpulimit", "gpulimitc", "gpulimit_server", "gpulimit-server"),
)
# They change nothing: what they show is waited for.
_READERS = ("cat ", "stoker log ", "gpulimit log ")
_AFTER_AN_END = (
    "stoker retry ",
    "gpulimit start ",
)  # refused while the job that was killed still ends


class Step(NamedTuple):
    """A command, and the output that must follow; None if any will do."""

    command: str
    output: str | None


def pattern_of(output: str) -> re.Pattern[str]:
    """What an output in the text stands for: `…` is anything within a line."""
    return re.compile(".*".join(map(re.escape, output.split("…"))))


def steps_of(block: str) -> list[Step]:
    """The commands of a session, each with the output that follows it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == "", "a session begins with a command"
    steps = []
    for part in parts[1:]:
        lines = part.splitlines(keepends=True)
        last = next(number for number, line in enumerate(lines) if not line.endswith("\\\n"))
        steps.append(Step("".join(lines[: last + 1]).rstrip("\n"), "".join(lines[last + 1 :])))
    return steps


def is_command(code: str) -> bool:
    """Whether a piece of code in a text is a whole command line."""
    return code.split()[0] in PROGRAMS and len(code.split()) > 1


class DocPage:
    """A page that is executed in the folders of a test's own Stoker."""

    def __init__(
        self, path: Path, stoker: Stoker, replace: Mapping[str, str] | None = None
    ) -> None:
        self._text = path.read_text()
        for old, new in (replace or {}).items():
            assert old in self._text, old
            self._text = self._text.replace(old, new)
        self._work = stoker.work
        bin_dir = os.path.dirname(sys.executable)
        self._env = {
            **stoker.env,
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "TMPDIR": str(stoker.work.parent),
        }
        self._shells: list[subprocess.Popen[bytes]] = []

    def write_files(self) -> None:
        """Write every file of the page."""
        for kind, name, body in _BLOCK.findall(self._text):
            if kind != "console" and (own := name or _first_comment(kind, body)):
                (self._work / own).write_text(body)

    def run_sessions(self) -> int:
        """Write files and run sessions in the page's order; how many commands ran."""
        ran = 0
        for match in _BLOCK.finditer(self._text):
            kind, name, body = match.groups()
            if kind == "console":
                for step in steps_of(body):
                    self._run(step)
                    ran += 1
                continue
            name = name or _first_comment(kind, body)
            assert name, f"a block is a file or a session: {body}"
            (self._work / name).write_text(body)
        return ran

    def run_column(self, title: str) -> int:
        """Run every command in the table column of this title; how many there were."""
        ran = 0
        for cell in self._cells(title):
            for code in _CODE.findall(cell.replace("\\|", "|")):
                assert "…" not in code, f"no command that could be typed: {code}"
                assert not code.startswith("-"), f"an option without its command: {code}"
                if is_command(code):
                    self._run(Step(code, None))
                    ran += 1
        return ran

    def prose_codes(self) -> list[str]:
        """Every piece of code outside of blocks and tables."""
        prose = _ROW.sub("", _BLOCK.sub("", self._text))
        return [code.strip("`") for code in _CODES.findall(prose)]

    def close(self) -> None:
        """End what commands have left running in the background."""
        for shell in self._shells:
            for signum in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signum)
            shell.wait()

    def _cells(self, title: str) -> Iterator[str]:
        """The cells of a column, of every table that has one of this title."""
        column: int | None = None
        end = 0
        for match in _ROW.finditer(self._text):
            if match.start() != end:
                column = None  # another table begins
            end = match.end() + 1
            cells = [cell.strip() for cell in _CELL_END.split(match[1])]
            if title in cells:
                column = cells.index(title)
            elif column is not None:
                yield cells[column]

    def _run(self, step: Step) -> None:
        if step.command.startswith((*_READERS, *_AFTER_AN_END)):
            until(lambda: self._is_true(step), step.command)
        else:
            assert self._is_true(step), (step, (self._work.parent / "output").read_text())

    def _is_true(self, step: Step) -> bool:
        """Run a command; whether its output is as shown or, where none is, whether it succeeds."""
        code, output = self._shell(step.command)
        if step.output is None:
            return code == 0
        return pattern_of(step.output).fullmatch(output) is not None

    def _shell(self, command: str) -> tuple[int, str]:
        """Run a line as a user types it; what goes on in its background is not waited for."""
        path = self._work.parent / "output"
        followed = {str(self._work / word) for word in command.split() if self._has_file(word)}
        with path.open("wb") as file:
            shell = subprocess.Popen(
                ["/bin/bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._work,
                start_new_session=True,
            )
        self._shells.append(shell)
        # It is not reaped before the end: its number stays that of its process group.
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        ended = until(lambda: os.waitid(os.P_PID, shell.pid, how), command)
        assert ended is not None
        if command.endswith("&"):
            until(lambda: followed <= _open_files(shell.pid), f"{command}: follows {followed}")
        output = path.read_text()
        return ended.si_status, output if output.endswith("\n") or not output else f"{output}\n"

    def _has_file(self, word: str) -> bool:
        return re.fullmatch(r"[\w.]+", word) is not None and (self._work / word).is_file()


def _open_files(group: int) -> set[str]:
    """The files that processes of a group hold open while they wait for something."""
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _parent, own_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if state == "S" and int(own_group) == group:
                found |= {os.readlink(link) for link in (folder / "fd").iterdir()}
    return found


def _first_comment(kind: str, body: str) -> str | None:
    first = body.partition("\n")[0]
    return first.removeprefix("# ") if kind == "python" and first.startswith("# ") else None
