"""Which GPUs there are, who uses them, and who holds them."""
