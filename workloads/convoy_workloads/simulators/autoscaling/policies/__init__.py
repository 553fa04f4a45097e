"""The policies that decide the number of replicas. `registry.py` makes them from their parameters."""
