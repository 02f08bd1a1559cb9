from __future__ import annotations

import re
from pathlib import Path

from stoker.cli.state_colours import BAD, ORDER, STYLES
from stoker.cli.verbs.complete import _STATES
from stoker.core.lifecycle import MEANING, TABLE, State, is_final

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "queue.md"


def test_every_state_has_a_meaning_a_colour_and_an_order() -> None:
    assert set(MEANING) == set(STYLES) == set(State)
    # No job rests as preempted.
    assert set(ORDER) == set(State) - {State.PREEMPTED} == set(map(State, _STATES))


def test_every_final_state_is_bad_but_those_that_were_wished() -> None:
    ended = {state for state in State if is_final(state)}
    assert set(BAD) == ended - {State.DONE, State.PRUNED}


def test_the_table_in_the_docs_is_the_table_in_the_lifecycle() -> None:
    rows = re.findall(r"(?m)^\| (\w+) \| ([^|]+) \| ([^|]+) \|$", REFERENCE.read_text())
    documented = {
        name: (meaning, leads) for name, meaning, leads in rows if name in {*map(str.lower, State)}
    }

    assert {name: meaning for name, (meaning, _) in documented.items()} == {
        state.value: meaning for state, meaning in MEANING.items()
    }
    for state in State:
        ways = {event.value for event, (sources, _target) in TABLE.items() if state in sources}
        assert set(re.findall(r"\w+", documented[state.value][1])) == (ways or {"–"} - {"–"})
