"""Health sweeps: which nodes are tested with what, and what their figures say. Pure."""
