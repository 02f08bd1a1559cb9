"""Talks to the daemon, and starts it where none runs."""
