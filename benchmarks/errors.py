"""What ends a benchmark run early."""


class BenchError(Exception):
    """The benchmarks cannot go on; the message says why and what to do."""
