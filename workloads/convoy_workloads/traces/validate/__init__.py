"""Checks of traces: of each trace alone, and of the traces of all ranks together."""
