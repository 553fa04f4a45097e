"""Benches of checkpoints: the costs of saves and restores, and the protocol under random schedules."""
