"""The loop that keeps GPUs busy."""
