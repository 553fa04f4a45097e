"""Benches of the training engines that implement a published method, each beside its baselines."""
