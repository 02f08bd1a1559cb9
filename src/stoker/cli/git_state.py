"""Which commit a folder's code is at: asked of git while other work goes on."""

from __future__ import annotations

import os

from stoker.repository import find_git, is_hash, is_own, read_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE_S = 2.0


class GitQuery:
    """Asks git about a folder.

    Starts no process outside of a repository, nor in one of another user: git would run programs there
    that the other user has named.
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
        """The commit, and whether tracked files differ from it; None where there is no commit.

        If git does not answer, or not in time, the commit is read without it, and `dirty` says
        that nobody has shown it clean.
        """
        if self._git is None:
            return None
        found = self._ask() if self._pid else None
        if found is not None:
            return found or None
        commit = read_head(self._git)
        return {"commit": commit, "dirty": True} if commit else None

    def _ask(self) -> dict[str, Any] | None:
        """What git says; empty where there is no commit yet, None if it does not say."""
        try:
            told = self._read()
        finally:
            os.close(self._reader)
            status = os.waitpid(self._pid, 0)[1]
        if told is None or status:
            return None
        lines = told.splitlines()
        commit = next((line.split()[2] for line in lines if line.startswith(b"# branch.oid ")), b"")
        if not is_hash(commit):
            return {}
        dirty = any(not line.startswith(b"#") for line in lines)
        return {"commit": commit.decode(), "dirty": dirty}

    def _read(self) -> bytes | None:
        import select
        import time

        told = b""
        deadline = time.monotonic() + _PATIENCE_S
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while poll.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            piece = os.read(self._reader, 1 << 16)
            if not piece:
                return told
            told += piece
        os.kill(self._pid, 9)
        return None
