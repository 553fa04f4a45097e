"""Simulations of training steps, one child process at a time."""
