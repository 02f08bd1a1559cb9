"""JSON through the C core of the standard library's module, without what importing that costs.

`json` imports `re`, at a third of what starting Python costs. Where the C core is not there, or not
as we know it, `json` itself is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Context:
    """What the C scanner asks of a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def dumps(value: Any) -> str:
    """A value as JSON, in ASCII."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        quote = encode_basestring_ascii
        encode = make_encoder(None, _refuse, quote, None, ":", ",", False, False, False)
        return "".join(encode(value, 0))
    except (ImportError, TypeError):
        import json

        return json.dumps(value, allow_nan=False)


def loads(text: str) -> Any:
    """The value of a JSON text; raises ValueError where it is none."""
    try:
        from _json import make_scanner

        value, end = make_scanner(_Context)(text, 0)  # type: ignore[arg-type]
    except (ImportError, TypeError):
        import json

        return json.loads(text)
    except StopIteration:
        raise ValueError("no JSON") from None
    if text[end:].strip():
        raise ValueError("something follows the JSON")
    return value


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is no JSON")
