"""What a probe is. Children import this: standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

MOST_SAMPLES = 512
"""Of one metric."""


class Tier(StrEnum):
    """How deep a sweep looks."""

    L0 = "L0"
    """Inventory."""
    L1 = "L1"
    """The node by itself."""
    L2 = "L2"
    """The node and a partner."""


class AcceleratorUse(StrEnum):
    """What of the node's accelerators a probe takes."""

    NONE = "None"
    EACH = "Each"
    """It runs once for each, on all at the same time."""
    IN_TURN = "InTurn"
    """It runs once for each, one after the other: they share what is measured."""
    ALL = "All"


class NotAvailable(Exception):
    """The node lacks what the probe measures; says what."""


@dataclass(slots=True)
class Measured:
    """What a probe found; one of the three, by its kind."""

    samples: list[float] = field(default_factory=list)
    """In the probe's unit, each above 0, in the order they were taken."""
    digests: list[str] = field(default_factory=list)
    """Of equal computations, which must be equal."""
    facts: dict[str, str] = field(default_factory=dict)
    """Of the inventory, by name."""


Run = Callable[[int, float], Measured]
"""(accelerator, seconds) -> what was found in about that time. NotAvailable, OSError, MemoryError."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One measurement: what the agent knows of it without running it."""

    name: str
    """Of its metric."""
    tier: Tier
    unit: str
    """Empty where it gives digests or facts."""
    higher_is_better: bool
    seconds: float
    """For which it samples."""
    run: str
    """`module:function`, a `Run`; only the child imports it."""
    memory: int = 512 * 2**20
    """Bytes that it may take; 0 for no bound."""
    accelerator_use: AcceleratorUse = AcceleratorUse.NONE
    one_thread: bool = False
    """Libraries compute in one thread."""


def until(seconds: float, least: int = 3) -> Iterator[int]:
    """Counts samples for so long, `least` at any rate and never more than MOST_SAMPLES."""
    end = time.monotonic() + seconds
    for count in range(MOST_SAMPLES):
        if count >= least and time.monotonic() >= end:
            return
        yield count
