"""Turns a command line into the arguments of an exec."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable

from stoker.errors import UsageError

DEFAULT_SHELL = "/bin/sh"
# One argument of exec may be 128 KiB long with its closing NUL; longer commands go through a file.
MAX_ARGUMENT_BYTES = 128 * 1024 - 1

# No quotes, expansions or operators: such a line means the same with and without a shell.
_PLAIN = re.compile(rb"[A-Za-z0-9_@%+=:,./ \t-]+")
_SHELL_WORDS = frozenset(
    b". : [ alias bg break case cd command continue do done echo elif else esac eval exec exit export"
    b" fc fg fi for getopts hash if in jobs kill local printf pwd read readonly return set shift test"
    b" then times trap type ulimit umask unalias unset until wait while".split()
)


class CommandLine:
    """Turns command lines into arguments for exec, without a shell if none is needed."""

    def __init__(self, shell: str, path: str) -> None:
        self.shell = shell
        self._path = path
        self._found: dict[bytes, str] = {}

    def words(self, command: bytes) -> list[str]:
        """Return the arguments for exec; the first is the path of the program."""
        direct = self._direct(command)
        return direct or [self.shell, "-c", os.fsdecode(command)]

    def literal_words(self, command: bytes) -> list[str] | None:
        """Return arguments without a shell for a command with quotes at most; None for other commands."""
        from stoker.warm.command import split_literal

        words = split_literal(command) if self.shell == DEFAULT_SHELL else None
        if words is None:
            return None
        return [find_program(words[0], self._path) or words[0], *words[1:]]

    def words_or_script(self, command: bytes, script_path: Callable[[], str]) -> list[str]:
        """Return arguments for a command of any length: a very long one becomes a script."""
        if len(command) < MAX_ARGUMENT_BYTES:
            return self.words(command)
        script = script_path()
        with open(script, "wb") as file:
            file.write(command + b"\n")
        return [self.shell, script]

    def _direct(self, command: bytes) -> list[str] | None:
        if self.shell != DEFAULT_SHELL or not _PLAIN.fullmatch(command):
            return None
        words = command.split()
        if not words:
            return None
        program = self._found.get(words[0]) or self._find(words[0])
        if program is None:
            return None
        return [program, *(word.decode("ascii") for word in words[1:])]

    def _find(self, word: bytes) -> str | None:
        # Only found programs are remembered: another job may install a missing one.
        if word in _SHELL_WORDS or b"=" in word:
            return None
        name = word.decode("ascii")
        found = find_program(name, self._path)
        if found is not None and "/" not in name:
            self._found[word] = found
        return found


def find_program(name: str, path: str) -> str | None:
    """Return the path of a program, looked up along PATH as a shell does; None if there is none."""
    for folder in [""] if "/" in name else path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def resolve_shell(name: str | None) -> str:
    """Return the path of a shell: /bin/sh for None, the user's own for `login`, else a name or a path."""
    if name is None:
        return DEFAULT_SHELL
    if name == "login":
        try:
            name = pwd.getpwuid(os.getuid()).pw_shell or DEFAULT_SHELL
        except KeyError:
            raise UsageError("you have no login shell on this machine: name one") from None
    found = find_program(name, os.environ.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    raise UsageError(f"no shell '{name}': pass a name on PATH, a full path, or 'login'")


def lacks_bash(shell: str) -> bool:
    """Whether a shell is /bin/sh, and that is not bash under another name."""
    return shell == DEFAULT_SHELL and os.path.basename(os.path.realpath(shell)) != "bash"
