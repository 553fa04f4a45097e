"""Federated training of adapters: the library behind `convoy.federated`. It needs torch, and nothing of
Convoy's launcher or operator.
"""
