"""Reinforcement learning of a flow-matching policy. Nothing here knows workers, nodes or clocks."""
