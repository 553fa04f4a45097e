"""The journal: the gradients of the steps since a full checkpoint. A restore replays the steps: the
program's own optimizer applies the gradients to the full checkpoint.

A segment is the journal of one rank between two saves. A chain is a full checkpoint, called its base, and
the segments that follow it.

TierCheck (arXiv 2605.17821) writes lossily compressed differences between states. The journal stores the
unchanged input of the optimizer instead, so a replay reproduces the state bit for bit.
"""
