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
    expansion: int = 200
    """Decompressed bytes for each compressed one. Traces compress to a tenth or thirtieth."""
    small_bytes: int = 2**20
    """Decompressed bytes that a file may have at any rate."""
    values: int = 20_000_000
    """Attributes, dependencies and list elements of the whole file. Each takes up to a hundred bytes."""
    string_length: int = 2**20
    """Characters of one text in a node."""
    list_length: int = 100_000
    """Dependencies, attributes or list elements of one node."""
    metadata_length: int = 8 * 2**20
    """Characters of one text in the facts about a trace, such as the ranks of all process groups."""
    depth: int = 200
    """Nested lists and objects of a JSON trace."""


LIMITS = Limits()
"""The bounds of the command line."""
