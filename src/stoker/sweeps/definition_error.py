"""What is wrong, told by those who do not know where it stands."""

from __future__ import annotations


class DefinitionError(Exception):
    """A mistake in a definition; whoever knows its place makes a UsageError of it."""
