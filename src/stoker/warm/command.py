"""Commands that can start warm: an interpreter with a script, a module or a text."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import time

from stoker.warm.messages import ForkRequest, read_learned, stamp_file

AUTO = "auto"
"""Instead of module names: the modules that the first run of the command imports."""
NEVER = "never"
"""Instead of module names: no warm start."""
NEEDS_SHELL = "it needs a shell: only plain python commands start warm"
_LEARN_AGAIN_S = 86400.0
_MAX_REASON_CHARACTERS = 1024  # a list of names is longer, and is not read here
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
# Options that do not change how a program is found; the worker gets the same.
_OPTIONS = re.compile(r"-[uBOEsIbdqPR]+")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Characters that a shell does not expand.
_LITERAL = re.compile(
    rb"""(?:[A-Za-z0-9_@%+=:,./ \t-]|'[^'\n\0]*'|"[^"$`\\!\n\0]*")+""",
)


def split_literal(command: bytes) -> list[str] | None:
    """Return the words of a shell line without special characters except quotes; None for other lines."""
    if not _LITERAL.fullmatch(command):
        return None
    words = shlex.split(os.fsdecode(command))
    return words if words and "=" not in words[0] else None


def is_python(word: str) -> bool:
    """Whether a word names a python interpreter."""
    return _PYTHON.fullmatch(os.path.basename(word)) is not None


def find_script(words: list[str]) -> int | str:
    """Return the position of the script, -m or -c in a python command, or why it cannot start warm."""
    if not is_python(words[0]):
        return (
            f"{os.path.basename(words[0]) or 'it'} is not python: only python commands start warm"
        )
    at = 1
    while at < len(words) and _OPTIONS.fullmatch(words[at]):
        at += 1
    if at < len(words) and words[at] == "-W" and at + 2 < len(words):
        at += 2
    if at == len(words):
        return "it names no script to run"
    word = words[at]
    if word in ("-m", "-c") and at + 1 < len(words):
        return at
    if word.startswith("-"):
        return f"python {word} does not start warm: only scripts, -m and -c do"
    return at if word.endswith(".py") else f"{word} is not a .py file"


def why_cold(form: str | None, command: bytes) -> str | None:
    """Return why a queued command will not start warm; None if its text does not show a reason."""
    split = [os.fsdecode(word) for word in command.split(b"\0")] if form == "argv" else None
    words = split or (split_literal(command) if form is None else None)
    if words is None:
        return NEEDS_SHELL
    found = find_script(words)
    return found if isinstance(found, str) else None


def make_warm(
    words: list[str], modules: list[str], cwd: str, folder: str, name: str = ""
) -> ForkRequest | str:
    """Return how a command starts warm, or why it does not.

    `folder` has the files of modules that `auto` has learned, for each program and each `name`.
    """
    at = find_script(words)
    if isinstance(at, str):
        return at
    if words[at] == "-m":
        path, program = cwd, words[at + 1]
    elif words[at] == "-c":
        path, program = "", words[at + 1]
    else:
        program = os.path.realpath(os.path.join(cwd, words[at]))
        path = os.path.dirname(program)
    named = [name for name in modules if name != AUTO]
    if AUTO not in modules:
        return ForkRequest(words, at, path, named)
    learned = os.path.join(folder, f"{_digest(words[:at], program, cwd, name)}.json")
    if _is_recent(learned):
        reason = _read_reason(learned)
        if reason is not None:
            return ForkRequest(words, at, path, named) if named else reason
        found = read_learned(learned)
        if all(stamp_file(stamp[0]) == stamp for stamp in found["sources"]):
            learn = learned if found["partial"] else None
            return ForkRequest(words, at, path, named, learned=learned, learn=learn)
    os.makedirs(folder, exist_ok=True)
    return ForkRequest(words, at, path, named, learn=learned)


def check_modules(modules: list[str]) -> str | None:
    """Return what is wrong with these names of modules; None if nothing is."""
    for name in modules:
        if not _MODULE.fullmatch(name):
            return f"{name!r} is not the name of a module; examples: torch, torch,numpy, auto"
    return None


def _is_recent(path: str) -> bool:
    """Whether a file exists and is not so old that it must be learned again."""
    try:
        return os.stat(path).st_mtime > time.time() - _LEARN_AGAIN_S
    except OSError:
        return False


def _read_reason(path: str) -> str | None:
    """Return why no modules were learned, if the file has a reason instead of names."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_REASON_CHARACTERS)
        return str(json.loads(text)) if text.startswith('"') else None
    except (OSError, ValueError):
        return None


def _digest(interpreter: list[str], program: str, cwd: str, name: str) -> str:
    """Return a name for a program in its present version."""
    try:
        status = os.stat(program)
        stamp = f"{status.st_mtime_ns} {status.st_size}"
    except OSError:
        stamp = ""
    text = "\0".join([*interpreter, program, cwd, stamp, name])
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
