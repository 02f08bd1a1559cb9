"""The state diagram of the docs says what the table in the code says."""

from __future__ import annotations

import re
from pathlib import Path

from stoker.core.lifecycle import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "architecture.md"


def test_the_diagram_shows_every_transition_of_the_table_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", text, re.DOTALL)
    shown = set(re.findall(r"^ +(\w+) --> (\w+): (\w+)$", diagram, re.MULTILINE))

    assert len(shown) == len(diagram.splitlines())
    assert shown == {
        (source.value, target.value, event.value)
        for event, (sources, target) in TABLE.items()
        for source in sources
    }
