"""A queue whose verbs run in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping

from conftest import Ended
from in_process import run_stoker
from integration.daemon_fixture import Queue

# These need a process of their own.
_APART = ("gpus", "run")


class QuickQueue(Queue):
    """`stoker VERB …` as in a Queue, without a process for each; for one thread."""

    def __call__(
        self,
        *words: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run `stoker WORDS` to its end."""
        if words[0] in _APART or stdin:
            return super().__call__(*words, stdin=stdin, env=env)
        return run_stoker(*words, env={**self.env, **(env or {})}, work=self.work)
