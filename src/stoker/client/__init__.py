"""Client of the daemon; starts the daemon if none runs."""
