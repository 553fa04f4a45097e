"""Saving into, and restoring from, memory that the node's agent keeps."""
