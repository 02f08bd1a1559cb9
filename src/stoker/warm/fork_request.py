"""How an attempt may be forked instead of started anew, as engine, executor and supervisor say it."""

from __future__ import annotations

from typing import NamedTuple


class ForkRequest(NamedTuple):
    """A python command, and what is to be imported before it is forked.

    `words[at]` is the script, -m or -c; what stands before are the interpreter and its options. Imports
    begin to look in `path`. `learned` is a file with the names of further modules; those may fail. To
    the file `learn` a job writes what it has imported itself.
    """

    words: list[str]
    at: int
    path: str
    modules: list[str]
    learned: str | None = None
    learn: str | None = None
