"""Bench of ServingJobs: the front and the engine lm on one machine, rollouts and faults on real nodes."""
