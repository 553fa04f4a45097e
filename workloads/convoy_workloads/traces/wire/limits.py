"""Bounds on foreign files, so that no file takes all memory or all time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest sizes of a trace that is read."""

    file_bytes: int = 512 * 2**20
    decompressed_bytes: int = 2**30
    nodes: int = 2_000_000
    message_bytes: int = 16 * 2**20
    """Bytes of one node."""
    string_length: int = 2**20
    """Characters of one text in a node."""
    list_length: int = 100_000
    """Dependencies or attributes of one node."""
    depth: int = 200
    """Nested lists and objects of a JSON trace."""


LIMITS = Limits()
"""The bounds of the command line."""
