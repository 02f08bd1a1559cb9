"""Which jobs share a GPU: what is known of their kind, what is set aside for them, who is let in where."""
