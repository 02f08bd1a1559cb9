"""The git commit of a folder, read by a git process that runs in the background."""

from __future__ import annotations

import os

from stoker.repository import find_git, is_hash, is_own, read_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TIMEOUT_S = 2.0


class GitQuery:
    """Starts git for a folder.

    It starts no process outside of a repository, nor in another user's: git would run programs that
    the other user's configuration names.
    """

    def __init__(self, folder: bytes) -> None:
        self._git = find_git(folder)
        self._pid = 0
        if self._git is None or not is_own(self._git):
            return
        self._reader, writer = os.pipe()
        words = [b"git", b"-C", folder, b"-c", b"core.fsmonitor=false", b"--no-optional-locks"]
        words += [b"status", b"--porcelain=v2", b"--branch", b"--no-ahead-behind"]
        words += [b"--untracked-files=no", b"--ignore-submodules=dirty"]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            self._pid = os.posix_spawnp("git", words, os.environ, file_actions=actions)
        except OSError:
            os.close(self._reader)
        finally:
            os.close(writer)

    def answer(self) -> dict[str, Any] | None:
        """Return the commit, and whether tracked files differ from it; None without a commit.

        If git does not answer in time, the commit is read without it and counts as `dirty`.
        """
        if self._git is None:
            return None
        found = self._read_answer() if self._pid else None
        if found is not None:
            return found or None
        commit = read_head(self._git)
        return {"commit": commit, "dirty": True} if commit else None

    def _read_answer(self) -> dict[str, Any] | None:
        """Read git's output; empty without a commit, None if git failed."""
        try:
            output = self._read()
        finally:
            os.close(self._reader)
            status = os.waitpid(self._pid, 0)[1]
        if output is None or status:
            return None
        lines = output.splitlines()
        commit = next((line.split()[2] for line in lines if line.startswith(b"# branch.oid ")), b"")
        if not is_hash(commit):
            return {}
        dirty = any(not line.startswith(b"#") for line in lines)
        return {"commit": commit.decode(), "dirty": dirty}

    def _read(self) -> bytes | None:
        import select
        import time

        output = b""
        deadline = time.monotonic() + _TIMEOUT_S
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while poll.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            piece = os.read(self._reader, 1 << 16)
            if not piece:
                return output
            output += piece
        os.kill(self._pid, 9)
        return None
