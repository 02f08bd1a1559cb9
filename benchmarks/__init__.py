"""Stoker beside its peers: speed and memory, measured in one run."""
