"""Sharing policy: which jobs share a GPU, how much memory is reserved, what is learned from runs."""
