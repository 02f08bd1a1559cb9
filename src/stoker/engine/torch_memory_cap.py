"""Limits the GPU memory of a job with a setting of torch, if its torch has that setting."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from stoker.engine.queue import QueueEntry
from stoker.executors.contract import Launch
from stoker.warm.command import is_python

Surroundings = Callable[[QueueEntry], tuple[list[str] | None, Mapping[str, str]]]
"""The words of a job's command, or None if it needs a shell; and its environment."""

# An older torch does not start with an unknown setting.
_FIRST_VERSION = (2, 10)
_SETTING = "per_process_memory_fraction"
# Torch reads the first one that is set.
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_XLA_VARIABLE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_RELEASED = re.compile(r"""^__version__ = ['"](\d+)\.(\d+)\.\d+(?:\+[^'"]*)?['"]$""", re.MULTILINE)
_VERSIONED = re.compile(r"python3\.\d+")


class TorchMemoryCap:
    """Caps launches of plain python commands whose torch has a known version."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def is_possible(self, entry: QueueEntry) -> bool:
        """Whether a job can be capped when it starts."""
        words, env = self._surroundings(entry)
        return _can_cap(words, env)

    def cap(self, launch: Launch, entry: QueueEntry, share: float) -> Launch | None:
        """The launch with at most this share of its GPU's memory; None if it cannot be capped.

        A forked job caps itself: its torch may have read its settings already.
        """
        words, env = self._surroundings(entry)
        setting = add_cap(env, share) if _can_cap(words, env) else None
        if setting is None:
            return None
        settings = [setting]
        if _XLA_VARIABLE not in env:
            settings.append(f"{_XLA_VARIABLE}={share:.4f}")
        warm = None if launch.warm is None else launch.warm._replace(gpu_share=share)
        argv = ["/usr/bin/env", *settings, *launch.argv]
        return msgspec.structs.replace(launch, argv=argv, warm=warm)


def _can_cap(words: list[str] | None, env: Mapping[str, str]) -> bool:
    """Whether a command is python with a torch that can be capped, and sets no limit of its own."""
    return bool(
        words and is_python(words[0]) and has_cap(words[0], env) and add_cap(env, 1.0) is not None
    )


def add_cap(env: Mapping[str, str], share: float) -> str | None:
    """The variable that caps torch, with the user's own settings in it.

    None if the user has set a cap, or another allocator.
    """
    name = next((name for name in _VARIABLES if env.get(name)), _VARIABLES[0])
    theirs = env.get(name, "")
    if _SETTING in theirs or "backend:" in theirs:
        return None
    return f"{name}={theirs}{',' * bool(theirs)}{_SETTING}:{share:.4f}"


def has_cap(python: str, env: Mapping[str, str]) -> bool:
    """Whether the torch that an interpreter imports is a release that can be capped."""
    for folder in _import_folders(python, env):
        try:
            with open(os.path.join(folder, "torch", "version.py"), encoding="utf-8") as file:
                found = _RELEASED.search(file.read())
        except (OSError, UnicodeDecodeError):
            continue
        return found is not None and (int(found[1]), int(found[2])) >= _FIRST_VERSION
    return False


def _import_folders(python: str, env: Mapping[str, str]) -> Iterator[str]:
    """The folders where an interpreter looks for packages, in order."""
    yield from filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            settings = dict(re.findall(r"^([\w-]+)\s*=\s*(.*?)\s*$", file.read(), re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        settings = {"include-system-site-packages": "true"}
    else:
        own = glob.glob(os.path.join(glob.escape(prefix), "lib", "python3.*", "site-packages"))
        yield from own if len(own) == 1 else ()
    if settings.get("include-system-site-packages", "").lower() == "true":
        yield from _system_folders(os.path.realpath(python), env)


def _system_folders(python: str, env: Mapping[str, str]) -> Iterator[str]:
    name = os.path.basename(python)
    if _VERSIONED.fullmatch(name) is None:
        return
    prefix = os.path.dirname(os.path.dirname(python))
    if not env.get("PYTHONNOUSERSITE") and env.get("HOME"):
        yield os.path.join(env["HOME"], ".local", "lib", name, "site-packages")
    for root in dict.fromkeys((os.path.join(prefix, "local"), prefix)):
        for folder in ("site-packages", "dist-packages"):
            yield os.path.join(root, "lib", name, folder)
    yield os.path.join(prefix, "lib", "python3", "dist-packages")
