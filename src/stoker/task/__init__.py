"""Work from Python, without a daemon: the engine is a private child of the process that asks.

your process ──socketpair──▶ host (engine, database) ──▶ supervisor ──▶ your jobs
"""
