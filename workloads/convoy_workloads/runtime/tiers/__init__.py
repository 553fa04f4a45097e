"""Saves to memory that the node's agent provides, and restores from that memory."""
