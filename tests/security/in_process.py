"""A queue whose verbs run in the test's own process: no interpreter has to be started for them."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from unittest.mock import patch

from conftest import Ended
from integration.daemon_fixture import Queue
from stoker.cli.main import main

# These need a process of their own: NVML is found by the environment that a process was started with.
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
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        before = os.getcwd()
        with (
            patch.dict(os.environ, {**self.env, **(env or {})}, clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            os.chdir(self.work)
            try:
                code = main([os.fsdecode(word) for word in words])
            finally:
                os.chdir(before)
        return Ended(code, _written(out), _written(err))


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()
