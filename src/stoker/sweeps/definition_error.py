"""Error in a sweep definition without its position in the file."""

from __future__ import annotations


class DefinitionError(Exception):
    """A mistake in a definition. The caller adds the position and raises a UsageError."""
