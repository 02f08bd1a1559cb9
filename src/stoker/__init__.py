"""Stoker keeps every GPU fed."""

__version__ = "0.1.0"
