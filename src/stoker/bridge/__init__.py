"""Connection of a head to the nodes of its cluster: the bridge process, and an agent on each node."""
