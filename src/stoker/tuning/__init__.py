"""Adaptive sweeps: parameters chosen by the results so far, and runs that are stopped early."""
