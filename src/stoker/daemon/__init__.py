"""The process that holds the queue."""
