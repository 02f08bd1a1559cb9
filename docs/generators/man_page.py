"""Generator of the manual page `stoker.1`, made from the parsers of the verbs."""

from __future__ import annotations

from generators.commands import Verb, verbs

_HEAD = """\
.\\" Made by docs/generators/man_page.py from the parsers: change those, then run `make man`.
.TH STOKER 1 "" "stoker" "User Commands"
.SH NAME
stoker \\- job scheduler for GPUs
.SH SYNOPSIS
.B stoker
.I VERB
.RI [ arguments ]
.SH DESCRIPTION
Stoker runs each command on a free GPU, and starts the next one the moment another ends. It keeps a queue that
survives crashes, runs sweeps, and shares GPUs between small runs.
.SH VERBS
"""
_TAIL = """\
.SH FILES
.TP
.I ~/.local/state/stoker
The home: database, logs and sockets of the queue.
.SH ENVIRONMENT
.TP
.B STOKER_HOME
Another home.
.TP
.B STOKER_LEASE_DIR
Another folder for the leases of GPUs.
.SH EXIT STATUS
0 for success, 1 for failure, 2 for wrong usage.
"""


def page() -> str:
    """Return the manual page, in roff."""
    return _HEAD + "".join(map(_section, verbs())) + _TAIL


def _section(verb: Verb) -> str:
    options = "".join(f".TP\n.B {_text(typed)}\n{_text(text)}\n" for typed, text in verb.options())
    examples = "".join(f"{_text(line.removeprefix('  '))}\n" for line in verb.examples.splitlines())
    return (
        f".SS stoker {verb.name}\n{_text(verb.summary)}\n{options}"
        f".PP\nExamples:\n.PP\n.nf\n.RS 4\n{examples}.RE\n.fi\n"
    )


def _text(text: str) -> str:
    """Escape a line for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
