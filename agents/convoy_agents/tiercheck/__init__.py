"""Checkpoints in the memory of nodes, copied to other nodes and to a store."""
