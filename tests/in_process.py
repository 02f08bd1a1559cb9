"""The command line, run in the test's own process: no interpreter has to be started for it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from conftest import Ended
from stoker.cli.main import main


def run_stoker(*words: str | bytes, env: Mapping[str, str], work: Path) -> Ended:
    """Run `stoker WORDS` with this environment, in this folder; for one thread.

    Not for verbs that ask NVML: it is found by the environment that a process was started with.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    before = os.getcwd()
    with (
        patch.dict(os.environ, env, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        os.chdir(work)
        try:
            code = main([os.fsdecode(word) for word in words])
        finally:
            os.chdir(before)
    return Ended(code, _written(out), _written(err))


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()
