"""Generators of the documentation site: pages that are made from the program itself."""
