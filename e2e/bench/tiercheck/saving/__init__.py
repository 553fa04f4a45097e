"""What saving costs, and what it takes to have a state again: the parts of `make bench-tiercheck`."""
