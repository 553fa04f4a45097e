"""The journal: the gradients since a full checkpoint. The program's own optimizer computes its state again
from them.

TierCheck (arXiv 2605.17821) writes lossily compressed differences between states. Here a difference is the
unchanged input of the optimizer, so that the state is reproduced bit for bit.
"""
