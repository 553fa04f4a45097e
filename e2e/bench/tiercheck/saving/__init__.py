"""Costs of saving and restoring: the parts of `make bench-tiercheck`."""
