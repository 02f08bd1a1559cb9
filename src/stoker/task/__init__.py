"""The Python API, without a daemon: each caller has a private engine in a child process.

your process ──socketpair──▶ host (engine, database) ──▶ supervisor ──▶ your jobs
"""
