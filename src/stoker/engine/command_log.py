"""Log files of commands whose output goes to a folder that the user named."""

from __future__ import annotations

import contextlib
import os

from stoker.core.job import Attempt


def start_log(path: str, attempt: Attempt) -> str:
    """Return the file for the output of an attempt, without what an earlier run wrote there.

    The first attempt has `path`, such as `logs/7.log`; the second one has `logs/7.2.log`.
    """
    if attempt.number > 1:
        stem, extension = os.path.splitext(path)
        path = f"{stem}.{attempt.number}{extension}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return path
