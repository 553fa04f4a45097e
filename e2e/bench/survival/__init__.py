"""Benches of faults on real nodes: the time to recover from each, and a soak of random ones."""
