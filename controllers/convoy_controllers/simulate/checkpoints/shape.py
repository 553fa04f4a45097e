"""What is simulated: how many nodes, ranks and copies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What runs."""

    nodes: int = 4
    slots: int = 3
    copies: int = 1
    steps_per_second: float = 1.0
    save_every: int = 2
    upload_every: int = 3
    segments: int = 0
    """Of a journal behind each base, at most."""
    loss: float = 0.03
    """Share of messages that get lost; as many come twice."""
