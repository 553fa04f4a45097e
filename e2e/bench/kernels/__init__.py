"""Benches of the compute kernels, and of the engines that use them, each beside its baselines."""
