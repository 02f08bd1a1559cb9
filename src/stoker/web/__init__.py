"""The web page: the daemon's HTTP interface over TCP, for browsers that have the token."""
