"""Checkpoints in the memory of nodes, with copies on other nodes and in a store."""
