"""Finds an interpreter on a machine over ssh that Stoker can use there: one of the head's version."""

from __future__ import annotations

import sys

from stoker.cluster.ssh.connection import SshConnection
from stoker.errors import StokerError

_OLDEST = (3, 10)
_PREFIX = "stoker-python "
_TIMEOUT_S = 60.0
# PATH of a command over ssh is short: the usual places of other installations come after it.
_SCRIPT = """\
for p in {names} {places}; do
  f=$(command -v "$p") || continue
  "$f" -E -s -c 'import sys; print("{prefix}%d.%d %s" % (sys.version_info[:2] + (sys.executable,)))' \
    2>/dev/null </dev/null
done
exit 0
"""
_PLACES = (
    '"$HOME"/.local/bin/python{version}',
    '"$HOME"/.pyenv/versions/*/bin/python{version}',
    '"$HOME"/.local/share/uv/python/*/bin/python{version}',
    '"$HOME"/*conda3/bin/python{version}',
    '"$HOME"/miniforge3/bin/python{version}',
    "/usr/local/bin/python{version}",
    "/opt/conda/bin/python{version}",
)


def find_python(connection: SshConnection, named: str | None) -> str:
    """Return the path of an interpreter there. `named`: the user's choice.

    Raises StokerError if there is none of this machine's version.
    """
    version = "{}.{}".format(*sys.version_info[:2])
    names = f"python{version} python3 python" if named is None else _quote(named)
    places = " ".join(_PLACES).format(version=version) if named is None else ""
    script = _SCRIPT.format(names=names, places=places, prefix=_PREFIX)
    ended = connection.run("exec /bin/sh -s", [script.encode()], _TIMEOUT_S)
    found = _parse(ended.out)
    for each, path in found:
        if each == version:
            return path
    raise StokerError(_describe(connection.target, [each for each, _ in found], version, named))


def _parse(text: str) -> list[tuple[str, str]]:
    """Return versions and paths; a login shell may have printed other lines."""
    lines = [line for line in text.splitlines() if line.startswith(_PREFIX)]
    words = [line.removeprefix(_PREFIX).split(" ", 1) for line in lines]
    return [(pair[0], pair[1]) for pair in words if len(pair) == len(("version", "path"))]


def _describe(target: str, versions: list[str], wanted: str, named: str | None) -> str:
    remedy = f"install Python {wanted} there, which this box has"
    if named is not None:
        said = f"Python {versions[0]}" if versions else "no Python"
        return f"--python {named} is {said} on {target}: Ray needs Python {wanted} on both boxes"
    if not versions:
        return f"{target} has no Python: {remedy}"
    listed = ", ".join(sorted(set(versions), key=_key))
    if all(_key(each) < _OLDEST for each in versions):
        return f"Python {listed} on {target} is too old: {remedy}"
    return (
        f"{target} has Python {listed}, and Ray works only between boxes with the same version: {remedy};"
        " if it is there, name it with --python PATH"
    )


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _quote(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
