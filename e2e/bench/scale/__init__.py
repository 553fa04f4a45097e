"""Bench of a thousand workers on fake nodes, compared with JobSet."""
