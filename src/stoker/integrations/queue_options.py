"""Options of jobs that come from another tool, as fields of a submission."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from stoker.cli.add_options import read_options
from stoker.core.durations import parse_duration
from stoker.errors import ConflictError, UsageError
from stoker.submit_context import build_submission, find_folder, take_environment
from stoker.wire import NewJob, Submission

# Options that have another name at `stoker add`.
_ADD_NAMES = {"gpu_model": "on"}
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s,/]+")
_MAX_NAME = 200
_OPTION = re.compile(r"(?<![^\s(])(--?[a-z][a-z-]*)( ?)")


def read_queue_options(given: Mapping[str, Any], spell: Callable[[str], str]) -> dict[str, Any]:
    """Read options that are written as for `stoker add`; `spell` is how messages name one."""
    names = {_ADD_NAMES.get(name, name): name for name in given if name not in ("gpus", "timeout")}
    options = read_options(
        {name: given[own] for name, own in names.items()},
        lambda name: spell(names[name.replace("-", "_")]),
    )
    return {
        **options,
        "gpus": given["gpus"],
        "timeout_s": read_timeout(given["timeout"], spell("timeout")),
    }


def read_timeout(text: str | None, name: str) -> float | None:
    """Read a time limit; None is no limit."""
    try:
        return None if text is None else parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def make_submission(
    jobs: list[NewJob],
    options: Mapping[str, Any],
    spell: Callable[[str], str],
    variables: Mapping[str, str] | None = None,
) -> Submission:
    """Return a submission from this folder and environment; UsageError for a wrong value.

    `spell` is how messages name an option.
    """
    environment = take_environment()
    environment["env"] = {**environment["env"], **(variables or {})}
    first = [msgspec.to_builtins(jobs[0])]
    message = build_submission(first, find_folder(None), dict(options), environment)
    try:
        return msgspec.structs.replace(msgspec.convert(message, Submission), jobs=jobs)
    except msgspec.ValidationError as error:
        raise UsageError(_describe_wrong(error, options, spell)) from None


def _describe_wrong(
    error: msgspec.ValidationError, options: Mapping[str, Any], spell: Callable[[str], str]
) -> str:
    """Name the option of a field that has a wrong value: `cpus 0: expected int >= 1`."""
    text, _at, field = str(error).rstrip("`").partition(" - at `$.")
    name = field.removesuffix("_s").removesuffix("_bytes")
    expected = text.replace("`", "").replace("Expected", "expected")
    if field not in options:
        return str(error)
    if field.endswith("_bytes"):  # the user has written GB
        return f"{spell(name)}: {expected} bytes"
    return f"{spell(name)} {options[field]}: {expected}"


@contextlib.contextmanager
def spelled_as(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors of the queue name the options of a tool instead of those of `stoker add`.

    `names` has the tool's name of each option: `{"-g": "hydra.launcher.gpus"}`.
    """

    def spell(found: re.Match[str]) -> str:
        name = names.get(found[1])
        return found[0] if name is None else name + ("=" if found[2] else "")

    try:
        yield
    except (UsageError, ConflictError) as error:
        raise type(error)(_OPTION.sub(spell, str(error)), field=error.field) from None


def make_name(words: list[str]) -> str:
    """Return a name for a job from words, without characters that names may not have."""
    text = ":".join(_FORBIDDEN.sub("_", each) for each in words)
    return text[:_MAX_NAME].lstrip("-") or "job"
