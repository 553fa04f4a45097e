"""The description and result of a probe. Children import this module: standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

MAX_SAMPLES = 512
"""Maximum number of samples of one metric."""


class Tier(StrEnum):
    """The depth of a sweep."""

    L0 = "L0"
    """Inventory."""
    L1 = "L1"
    """The node alone."""
    L2 = "L2"
    """The node together with a partner."""


class AcceleratorUse(StrEnum):
    """The accelerators that a probe uses."""

    NONE = "None"
    EACH = "Each"
    """One run per accelerator, all concurrently."""
    IN_TURN = "InTurn"
    """One run per accelerator, one after the other, because they share the measured resource."""
    ALL = "All"


class NotAvailable(Exception):
    """The node lacks the hardware or software that the probe measures. The message names it."""


@dataclass(slots=True)
class Measured:
    """The result of a probe. Each probe fills one of the three fields."""

    samples: list[float] = field(default_factory=list)
    """Samples in the probe's unit, each above 0, in order of measurement."""
    digests: list[str] = field(default_factory=list)
    """Digests of identical computations, which must be equal."""
    facts: dict[str, str] = field(default_factory=dict)
    """Facts of the inventory by name."""


Run = Callable[[int, float], Measured]
"""(accelerator, seconds) -> the result of about `seconds` of measuring. NotAvailable, OSError, MemoryError.
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe's metadata, which the agent knows without running it."""

    name: str
    """Name of the probe and of its metric."""
    tier: Tier
    unit: str
    """Unit of the samples; empty for digests and facts."""
    higher_is_better: bool
    seconds: float
    """Seconds of sampling."""
    run: str
    """`module:function` of a `Run`. Only the child imports it."""
    memory: int = 512 * 2**20
    """Maximum bytes of additional memory; 0 for no limit."""
    accelerator_use: AcceleratorUse = AcceleratorUse.NONE
    one_thread: bool = False
    """Numeric libraries use a single thread."""


def sample_numbers(seconds: float, minimum: int = 3) -> Iterator[int]:
    """Count samples for `seconds`: at least `minimum` and at most MAX_SAMPLES."""
    end = time.monotonic() + seconds
    for count in range(MAX_SAMPLES):
        if count >= minimum and time.monotonic() >= end:
            return
        yield count
