"""The daemon's verbs: `api/endpoints.py` calls them as `verb(context, body or query)`."""
