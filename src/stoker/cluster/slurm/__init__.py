"""Slurm: its commands, the batch script of an allocation, and what it gives to a job."""
