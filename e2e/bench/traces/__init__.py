"""Benches of execution traces and of the simulation of training steps."""
