"""Values with limits, and bytes as JSON.

Commands, paths and environments are bytes. On the wire they are a string if they are valid UTF-8, else
`{"b64": …}`.
"""

from __future__ import annotations

import base64
from typing import Annotated

import msgspec

from stoker.core.job import MAX_NAME

MAX_TEXT = 16 * 2**20
MAX_PRIORITY = 1_000_000
MAX_GPUS = 1024
MAX_CPUS = 65536
MAX_RETRIES = 1000
MAX_POSITION = 2**53


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not valid UTF-8."""

    b64: str


Bytes = str | Base64
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Gpus = Annotated[int, msgspec.Meta(ge=0, le=MAX_GPUS)]
Priority = Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Retries = Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)]
TimeLimit = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[str, msgspec.Meta(pattern="^(auto|never|free|always:[1-9][0-9]?)$")]
GpuMemory = Annotated[int, msgspec.Meta(ge=2**20, le=2**50)]
Ram = Annotated[int, msgspec.Meta(ge=2**20, le=2**50)]
Cpus = Annotated[int, msgspec.Meta(ge=1, le=MAX_CPUS)]
NodeLabels = dict[Name, Annotated[str, msgspec.Meta(max_length=MAX_NAME)]]
UnixTime = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


def to_wire(data: bytes) -> Bytes:
    """Encode bytes for the wire."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return Base64(base64.b64encode(data).decode("ascii"))


def from_wire(value: Bytes) -> bytes:
    """Decode bytes from the wire; raises ValueError if the base64 is not valid."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return base64.b64decode(value.b64, validate=True)
