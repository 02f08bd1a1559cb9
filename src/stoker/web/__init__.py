"""The dashboard: the daemon's interface over TCP, for a browser that has the token."""
