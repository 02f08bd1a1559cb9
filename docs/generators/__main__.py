"""Writes the files that are made from the program and committed: `python -m generators`."""

from __future__ import annotations

from pathlib import Path

from generators import man_page

ROOT = Path(__file__).parents[2]
MAN_PAGE = ROOT / "docs" / "stoker.1"

if __name__ == "__main__":
    MAN_PAGE.write_text(man_page.page())
