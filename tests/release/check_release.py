"""Checks that a tag, the package's version, the changelog and CITATION.cff name the same release."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def find_mistakes(tag: str, root: Path) -> list[str]:
    """Return what does not agree with a tag such as v1.2.0."""
    init = (root / "src" / "stoker" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', init, re.MULTILINE)
    assert found is not None
    version = found[1]
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    mistakes = []
    if tag != f"v{version}":
        mistakes.append(f"the tag is {tag}, and src/stoker/__init__.py says {version}")
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        mistakes.append(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")
    if f"\nversion: {version}\n" not in "\n" + (root / "CITATION.cff").read_text():
        mistakes.append(f"CITATION.cff does not say 'version: {version}'")
    return mistakes


if __name__ == "__main__":
    mistakes = find_mistakes(sys.argv[1], ROOT)
    print("\n".join(mistakes) or f"{sys.argv[1]} agrees with version, changelog and citation")
    sys.exit(bool(mistakes))
