"""A line about a job that changes in place in a notebook; in a terminal each change is a line."""

from __future__ import annotations

import html
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display


class _Line:
    """Text that notebooks show as HTML."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        """Return the text as HTML; it can contain names of jobs."""
        return f"<small style='opacity:.7'>{html.escape(self._text)}</small>"


class StatusLine:
    """Shows the last text it was given."""

    def __init__(self) -> None:
        self._text = ""
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        text = "".join(char for char in text if char.isprintable())
        if text == self._text:
            return
        self._text = text
        if not is_notebook():
            print(text, flush=True)
        elif self._handle is None:
            self._handle = display(_Line(text), display_id=True)
        else:
            self._handle.update(_Line(text))


def is_notebook() -> bool:
    """Whether IPython runs as a kernel, whose client can show HTML."""
    return getattr(get_ipython(), "kernel", None) is not None
