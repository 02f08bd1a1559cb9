"""How attempts become processes, and how they end."""
