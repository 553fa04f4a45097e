"""The parts of `make bench-tiercheck`, which measure the costs of saving and restoring."""
