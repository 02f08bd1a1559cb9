"""Parameters of a run in the form of W&B's agent, from which `wandb.init()` fills `wandb.config`."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

WANDB_GROUPS = "STOKER_WANDB_GROUPS"
"""Variable of a submission whose runs get W&B's file: the names of nested parameters, comma between."""


def to_wandb_params(params: str, groups: Collection[str]) -> str:
    """Convert the JSON of `params` to the YAML that wandb reads: `{lr: {value: 0.1}}`.

    A parameter below one of `groups` is nested: `opt.lr` becomes `{opt: {value: {lr: 0.1}}}`.
    """
    config: dict[str, Any] = {}
    for name, value in json.loads(params).items():
        _put(config, name, value, groups)
    return f"{_to_yaml({name: {'value': value} for name, value in config.items()})}\n"


def _put(config: dict[str, Any], name: str, value: Any, groups: Collection[str]) -> None:
    """Put a parameter where its groups are."""
    inside, start = config, 0
    for end, char in enumerate(name):
        if char == "." and name[:end] in groups:
            group = inside.setdefault(name[start:end], {})
            if not isinstance(group, dict):
                break  # a parameter has the name of the group
            inside, start = group, end + 1
    inside[name[start:]] = value


def _to_yaml(value: Any) -> str:
    """Write YAML 1.1 on one line. To its parsers `1e-05` is a text, and `1.0e-05` is a number."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(key)}: {_to_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_to_yaml, value))}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        written = repr(value)
        return written if "." in written else written.replace("e", ".0e")
    return json.dumps(value)


def _text(text: str) -> str:
    """Write a text in double quotes and ASCII: escapes of JSON, but one for each character."""
    escaped = (
        f"\\U{ord(char):08x}" if ord(char) > 0xFFFF or char == "\x7f" else json.dumps(char)[1:-1]
        for char in text
    )
    return f'"{"".join(escaped)}"'
