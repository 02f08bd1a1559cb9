"""Fakes that exercise the real code paths: no GPU needed."""
