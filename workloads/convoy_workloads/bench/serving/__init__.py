"""Benches of serving: the front without compute, and clients for engines' benches."""
