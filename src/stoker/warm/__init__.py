"""Warm starts: python commands forked from a process that has their imports behind it."""
