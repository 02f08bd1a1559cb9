"""The daemon's verbs, one module each: what the API calls, one transaction at a time."""
