"""Working trees on their way to other machines, and results on their way back; no network in here."""
