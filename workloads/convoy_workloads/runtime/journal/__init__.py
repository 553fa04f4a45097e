"""The gradients since a full checkpoint, from which the program's own optimizer makes its state again.

TierCheck (arXiv 2605.17821) writes differences of states, compressed with loss. Here a difference is what the
optimizer consumed, unchanged, so that the state comes back bit for bit.
"""
