"""Convoy's checkpoints under the programming interfaces of others."""
