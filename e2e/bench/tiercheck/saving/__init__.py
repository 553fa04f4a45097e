"""Parts of `make bench-tiercheck` that measure the costs of saves and restores."""
