"""Log files of commands whose output goes to a folder that the user named."""

from __future__ import annotations

import os
import stat

from stoker.core.job import Attempt


def start_log(path: str, attempt: Attempt) -> str:
    """Return the file for the output of an attempt, without what an earlier run wrote there.

    The first attempt has `path`, such as `logs/7.log`; the second one has `logs/7.2.log`. A device or a FIFO,
    such as /dev/null, is used as it is.
    """
    if _is_special(path):
        return path
    if attempt.number > 1:
        stem, extension = os.path.splitext(path)
        path = f"{stem}.{attempt.number}{extension}"
    remove_log(path)
    return path


def remove_log(path: str) -> None:
    """Remove a log file if there is one. A device or a FIFO stays."""
    if os.path.lexists(path) and not _is_special(path):
        os.unlink(path)


def _is_special(path: str) -> bool:
    """Whether a path names something else than a plain file, such as /dev/null; a link to one counts too."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # there is nothing, or a link that leads nowhere
        return False
