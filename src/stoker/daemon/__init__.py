"""The daemon: the process that holds the queue."""
