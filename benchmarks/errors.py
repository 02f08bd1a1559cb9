"""Errors that end a benchmark run."""


class BenchError(Exception):
    """The benchmarks cannot go on; the message says why and what to do."""
