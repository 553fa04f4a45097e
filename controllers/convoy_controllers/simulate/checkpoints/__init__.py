"""Checkpoints in virtual time: nodes that die, agents that restart, messages that get lost."""
