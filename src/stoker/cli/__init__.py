"""One file per verb; starts fast, imports late."""
