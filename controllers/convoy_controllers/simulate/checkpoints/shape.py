"""Size of a simulated run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Numbers of nodes, slots and copies, and rates of steps, saves and uploads."""

    nodes: int = 4
    slots: int = 3
    copies: int = 1
    steps_per_second: float = 1.0
    save_every: int = 2
    upload_every: int = 3
    segments: int = 0
    """Maximum number of journal segments after a base. A base is a save that extends no other save."""
    loss: float = 0.03
    """Fraction of messages that are lost. The same fraction of messages arrives twice."""
