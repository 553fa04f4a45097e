"""Benches of execution traces and of simulated training steps."""
