"""Transfer of working trees to nodes and of results back; no network code."""
