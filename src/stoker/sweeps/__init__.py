"""Sweeps: from a sweep file or inline parameters to runs."""
