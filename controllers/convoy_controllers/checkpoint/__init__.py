"""Rules for checkpoints: which states are kept, where, and which one is restored. Pure; the agents apply
them.
"""
