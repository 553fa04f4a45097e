"""Saves to memory that the node's agent keeps, and restores from it."""
