"""Compatibility commands: the command lines of older tools, implemented with Stoker."""
