from __future__ import annotations

import pytest

from stoker.cli.main import VERBS
from stoker.cli.verbs.complete import choices_for


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_completes_its_options(verb: str) -> None:
    assert ("--help", "explain the verb") in choices_for([verb, "--"])


def test_options_that_exclude_each_other_are_completed() -> None:
    assert choices_for(["results", "--c"]) == [
        ("--columns", "these columns, comma between"),
        ("--csv", "as csv"),
    ]
