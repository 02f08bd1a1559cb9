"""How long work would take: the sharing policy on GPUs and a clock that are simulated."""
