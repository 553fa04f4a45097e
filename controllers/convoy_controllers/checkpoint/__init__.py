"""Rules for checkpoints: which states are kept, where they are kept, and which state is restored. Pure; the
agents apply the rules.
"""
