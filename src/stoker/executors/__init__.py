"""Executors: run attempts as processes, on this machine or on nodes."""
