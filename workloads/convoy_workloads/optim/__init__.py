"""Optimizers for programs with PyTorch: the library behind `convoy.optim`. It needs torch, and nothing of
Convoy's launcher or operator.
"""
