"""Atomic replacement of a folder by another one on the same file system."""

from __future__ import annotations

import ctypes
import errno
import os

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL)


def put_in_place(new: str, path: str) -> None:
    """Give a folder its path. If there is one already, the two change places: `new` is the old one then.

    A file system that cannot exchange folders has none at the path for a moment.
    """
    try:
        os.rename(new, path)  # there is none, or an empty one
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    else:
        return
    try:
        _exchange(new, path)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        aside = f"{new}.old"
        os.rename(path, aside)
        os.rename(new, path)
        os.rename(aside, new)


def _exchange(one: str, other: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    try:
        rename = libc.renameat2
    except AttributeError:  # an old C library
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one)
