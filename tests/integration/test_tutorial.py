"""The tutorial does what it says: every file is written, every command run, every output compared."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from integration.doc_page import DOCS, DocPage, Step, pattern_of, steps_of

if TYPE_CHECKING:
    from integration.door import Queue

TUTORIAL = DOCS / "tutorial" / "ten-minutes.md"


def test_every_line_of_the_tutorial_is_true(idle_queue: Queue) -> None:
    with closing(DocPage(TUTORIAL, idle_queue.stoker)) as page:
        assert page.run_sessions() > 20


def test_a_false_line_would_be_noticed() -> None:
    assert pattern_of("1 done, in …\n").fullmatch("1 done, in 0.2 s\n")
    assert not pattern_of("1 done, in …\n").fullmatch("2 done, in 0.2 s\n")
    assert not pattern_of("").fullmatch("an unexpected word\n")
    with pytest.raises(AssertionError, match="begins with a command"):
        steps_of("no command\n")


def test_a_command_may_go_on_in_the_next_line() -> None:
    assert steps_of("$ echo a \\\n  b\na b\n$ true\n") == [
        Step("echo a \\\n  b", "a b\n"),
        Step("true", ""),
    ]
