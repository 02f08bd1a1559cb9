"""Warm starts: python commands forked from a process that has imported their modules."""
