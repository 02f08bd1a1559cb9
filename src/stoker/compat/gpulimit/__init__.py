"""Compatibility with gpulimit: its client's commands, and its server, which is Stoker's daemon."""
