"""The small process that parents all jobs: standard library only, one thread, one file of record."""
