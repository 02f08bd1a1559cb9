"""Reading of request bodies: JSON, of limited size, within a limited time."""

from __future__ import annotations

import asyncio
import gc
import re
from typing import TypeVar

import msgspec

from stoker.api.asgi import Receive, Scope
from stoker.api.headers import header
from stoker.api.problem import RefusedError

MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 30.0

T = TypeVar("T")


async def read_json(scope: Scope, receive: Receive, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the body to the decoder's type; raise RefusedError if anything is wrong with it."""
    media = (header(scope, b"content-type") or "").partition(";")[0]
    if media.strip().lower() != "application/json":
        raise RefusedError(415, "the body must be application/json", hang_up=True)
    announced = header(scope, b"content-length") or "0"
    if not announced.isdecimal() or int(announced) > MAX_BYTES:
        raise _too_large()
    try:
        data = await asyncio.wait_for(_read(receive), TIMEOUT_S)
    except asyncio.TimeoutError:
        raise RefusedError(
            408, f"the body did not arrive within {TIMEOUT_S:.0f}s", hang_up=True
        ) from None
    return _decode(data, decoder)


def refuse_body(scope: Scope) -> None:
    """Refuse a body where none is expected."""
    length = header(scope, b"content-length")
    if length not in (None, "0") or header(scope, b"transfer-encoding") is not None:
        raise RefusedError(400, "this request takes no body", hang_up=True)


async def _read(receive: Receive) -> bytes | bytearray:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return _sized(message.get("body", b""))
    data = bytearray()
    while message["type"] == "http.request":
        data += message.get("body", b"")
        _sized(data)
        if not message.get("more_body", False):
            return data
        message = await receive()
    raise RefusedError(400, "the body was cut off", hang_up=True)


def _sized(data: bytes | bytearray) -> bytes | bytearray:
    if len(data) > MAX_BYTES:
        raise _too_large()
    return data


def _too_large() -> RefusedError:
    return RefusedError(
        413,
        f"a request may have {MAX_BYTES} bytes: send the jobs in several, or a script as a file",
        hang_up=True,
    )


def _decode(data: bytes | bytearray, decoder: msgspec.json.Decoder[T]) -> T:
    # A hundred thousand new objects would trigger the garbage collector again and again, for nothing.
    enabled = gc.isenabled()
    gc.disable()
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.search(r"`\$\.(\w+)", str(error))
        raise RefusedError(
            400,
            f"the body is not valid: {error}",
            field=place[1] if place else None,
        ) from None
    finally:
        if enabled:
            gc.enable()
