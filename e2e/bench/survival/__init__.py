"""Faults on real nodes: the time to the next step, and half an hour of random ones."""
