"""Bench of the autoscaler."""
