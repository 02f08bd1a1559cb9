"""Queues that take jobs and run them later: each in a home of its own, stopped when it is left."""
