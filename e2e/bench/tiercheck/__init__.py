"""Benches of checkpoints: the costs of saving and restoring, and the protocol under random schedules."""
