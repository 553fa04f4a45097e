"""Traces that the ranks of this node record: the orders of the hub, and the way of the files to a store."""
