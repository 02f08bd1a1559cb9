"""Readers of metrics in files that training scripts and their libraries write into a run's folder."""
