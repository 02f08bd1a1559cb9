"""Benchmarks: speed and memory of Stoker and its peers, measured in one run."""
