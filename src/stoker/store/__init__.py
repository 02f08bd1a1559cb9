"""What is remembered: SQLite, one writer."""
