"""Runs a function of `on_box` on a machine that has Python and ssh, and no Stoker.

The program, its request and what it reads go through the standard input. So nothing secret is in a command
line there, and nothing has to be installed first.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from typing import Any

from stoker.accounts import printable
from stoker.cluster.ssh.connection import SshConnection
from stoker.errors import StokerError

# The modules that the function needs, in the order of their imports.
_MODULES = ("stoker.errors", "stoker.accounts", "stoker.home", "stoker.cluster.ssh.on_box")
_BOOT = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_PROGRAM = """\
import sys, types
for name in ("stoker", "stoker.cluster", "stoker.cluster.ssh"):
    sys.modules[name] = types.ModuleType(name)
for name, source in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
import json
module.main({action!r}, json.loads({request!r}), sys.stdin.buffer)
"""
_ANSWER = "stoker-answer "
_TIMEOUT_S = 60.0
_MAX_LINE = 300


def call(
    connection: SshConnection,
    python: str,
    action: str,
    request: dict[str, Any] | None = None,
    payload: Iterable[bytes] = (),
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """Call a function of `on_box` there. Returns its answer; raises StokerError if it reports an error."""
    program = _PROGRAM.format(
        sources=[(name, _read_source(name)) for name in _MODULES],
        action=action,
        request=json.dumps(request or {}),
    ).encode()
    ended = connection.run(
        f"exec {quote(python)} -I -c {quote(_BOOT)}",
        _chain(b"%d\n" % len(program), program, payload),
        timeout_s,
    )
    for line in reversed(ended.out.splitlines()):
        if line.startswith(_ANSWER):
            answer = json.loads(line.removeprefix(_ANSWER))
            if isinstance(answer, dict):
                return _checked(answer)
    last = (ended.err.strip() or ended.out.strip() or f"exit {ended.code}").splitlines()[-1]
    raise StokerError(f"{python} cannot run there: {printable(last, _MAX_LINE)}")


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise StokerError(printable(str(answer["error"]), _MAX_LINE))
    return answer


def _chain(length: bytes, program: bytes, payload: Iterable[bytes]) -> Iterable[bytes]:
    yield length
    yield program
    yield from payload


def _read_source(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    with open(found.origin, encoding="utf-8") as file:
        return file.read()


def quote(word: str) -> str:
    """Quote a word for the login shell there: sh, bash, zsh, fish or csh."""
    if "'" in word or "\\" in word or "!" in word:
        raise StokerError(f"a path with quotes, backslashes or ! cannot be used over ssh: {word}")
    return f"'{word}'"
