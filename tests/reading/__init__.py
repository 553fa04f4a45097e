"""Seeded draws for readers: docstrings and comments of the source, and facts of earlier pages."""
