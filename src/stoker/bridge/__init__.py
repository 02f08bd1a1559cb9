"""The way from a head to the nodes of its cluster: one process there, and an agent on each of them."""
