"""Archive of this machine's Stoker and Ray, with the packages they need, for a machine without internet.

The archive has the installed files themselves. Ray works only between equal versions of itself and of Python,
so files that work here work on every machine that can join, if its processor is of the same kind.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tarfile
import zlib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import NamedTuple

import stoker
from stoker import __version__
from stoker.errors import StokerError

_ROOTS = ("stoker", "ray")
_LEVEL = 1  # a faster one than most networks
_DIGEST_CHARS = 16
_NOT_SHIPPED = ("RECORD", "direct_url.json", "INSTALLER", "REQUESTED")
_GZIP = 31  # window bits of zlib for a gzip header


class Bundle(NamedTuple):
    """Files by their paths in `site-packages`, and a digest of all of them."""

    digest: str
    files: dict[str, str]
    size_bytes: int

    @property
    def label(self) -> str:
        """What is in it, for people."""
        return f"Stoker {__version__} and Ray {distribution('ray').version}"

    def chunks(self) -> Iterator[bytes]:
        """Return the archive, packed while it is read."""
        sink = _Sink()
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for name, path in self.files.items():
                try:
                    archive.add(path, name, recursive=False, filter=_anonymous)
                except OSError as error:
                    raise StokerError(_unreadable(path, error)) from None
                yield from sink.take()
        yield from sink.take()
        yield sink.end()


def collect() -> Bundle:
    """Find the files of Stoker, Ray and all packages that they require here."""
    files: dict[str, str] = {}
    for found in _close_over(_ROOTS):
        files.update(_stoker_files(found) if found.name == "stoker" else _files(found))
    summary = hashlib.sha256(f"{platform.machine()} {sys.implementation.cache_tag}".encode())
    size_bytes = 0
    for name in sorted(files):
        try:
            status = os.stat(files[name])
        except OSError as error:
            raise StokerError(_unreadable(files[name], error)) from None
        size_bytes += status.st_size
        summary.update(f"{name}\0{status.st_size}\0{int(status.st_mtime)}\0".encode())
    return Bundle(summary.hexdigest()[:_DIGEST_CHARS], files, size_bytes)


def _close_over(names: tuple[str, ...]) -> list[Distribution]:
    """Return the installed distributions of these names, and all that they require."""
    from packaging.requirements import Requirement  # comes with Ray
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            raise StokerError(
                f"{name} is not installed here, and Stoker needs it: pip install 'stoker[ray]'"
            ) from None
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                waiting.append(wanted.name)
    return list(found.values())


def _files(found: Distribution) -> dict[str, str]:
    """Return the files that a distribution has in `site-packages`: no scripts, which name an interpreter."""
    if found.files is None:
        raise StokerError(
            f"{found.name} has no list of its files: pip install --force-reinstall {found.name}"
        )
    files = {}
    for file in found.files:
        path = str(found.locate_file(file))
        name = file.as_posix()
        if not name.startswith("../") and not _is_left_out(name) and os.path.isfile(path):
            files[name] = path
    return files


def _stoker_files(found: Distribution) -> dict[str, str]:
    """Return Stoker's own files: of the package that runs now, which may be a working tree."""
    assert stoker.__file__ is not None
    package = os.path.dirname(os.path.abspath(stoker.__file__))
    files = {}
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in names:
            path = os.path.join(folder, name)
            files[os.path.join("stoker", os.path.relpath(path, package))] = path
    about = (str(file) for file in found.files or () if file.parent.name.endswith(".dist-info"))
    files.update({name: str(found.locate_file(name)) for name in about if not _is_left_out(name)})
    return files


def _unreadable(path: str, error: OSError) -> str:
    return (
        f"cannot read {path} ({error.strerror or error}): Stoker or Ray has changed here meanwhile; once its"
        " installation has ended, try again"
    )


def _is_left_out(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return folder.endswith(".dist-info") and last in _NOT_SHIPPED


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who owns a file here."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


class _Sink:
    """File that compresses what is written, until it is taken away."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._packed: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._packed.append(self._packer.compress(data))
        return len(data)

    def take(self) -> Iterator[bytes]:
        packed = b"".join(self._packed)
        self._packed.clear()
        if packed:
            yield packed

    def end(self) -> bytes:
        return self._packer.flush()
