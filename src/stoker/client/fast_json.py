"""JSON by the C core of the standard library's `json`, without the cost of importing `json`.

`json` imports `re`, which costs a third of starting Python. If the C core is missing or different,
`json` itself is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Context:
    """The attributes that the C scanner reads from a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def dumps(value: Any) -> str:
    """Encode a value as JSON, in ASCII."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        quote = encode_basestring_ascii
        encode = make_encoder(None, _refuse, quote, None, ":", ",", False, False, False)
        return "".join(encode(value, 0))
    except (ImportError, TypeError):
        import json

        return json.dumps(value, allow_nan=False)


def loads(text: str) -> Any:
    """Decode a JSON text; raises ValueError for other text."""
    try:
        from _json import make_scanner

        value, end = make_scanner(_Context)(text, 0)  # type: ignore[arg-type]
    except (ImportError, TypeError):
        import json

        return json.loads(text)
    except StopIteration:
        raise ValueError("not JSON") from None
    if text[end:].strip():
        raise ValueError("something follows the JSON")
    return value


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be JSON")
