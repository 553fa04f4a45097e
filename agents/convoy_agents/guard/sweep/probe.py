"""The description and the result of a probe. Child processes import this module, so it imports only the
standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

MAX_SAMPLES = 512
"""Maximum number of samples of one metric."""


class Tier(StrEnum):
    """The tiers of a sweep, in ascending order of effort."""

    L0 = "L0"
    """Probes that read the node's inventory."""
    L1 = "L1"
    """Probes that measure the node alone."""
    L2 = "L2"
    """Probes that measure the node together with a partner node."""


class AcceleratorUse(StrEnum):
    """The accelerators of the node that a probe uses, and the number of runs."""

    NONE = "None"
    EACH = "Each"
    """One run per accelerator. All runs are concurrent."""
    IN_TURN = "InTurn"
    """One run per accelerator, one after the other, because the runs share the resource that they measure."""
    ALL = "All"


class NotAvailable(Exception):
    """The node lacks the hardware or software that the probe measures. The error message names what is
    missing.
    """


@dataclass(slots=True)
class Measured:
    """The measurements of one run of a probe. Depending on the probe, the run produces either samples,
    digests or facts, and the fields for the other two stay empty.
    """

    samples: list[float] = field(default_factory=list)
    """Samples in the probe's unit, in order of measurement. Each is greater than 0."""
    digests: list[str] = field(default_factory=list)
    """Digests of repetitions of one computation. On healthy hardware all are equal."""
    facts: dict[str, str] = field(default_factory=dict)
    """Values of facts about the node, by the name of the fact."""


Run = Callable[[int, float], Measured]
"""Runs a probe on the accelerator with this index for about this number of seconds, and returns the
measurements. Raises NotAvailable, OSError or MemoryError.
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """The description of a probe. The agent knows it without importing the probe's code."""

    name: str
    """Name of the probe and of the metric that it measures."""
    tier: Tier
    unit: str
    """Unit of the samples; empty if the probe produces digests or facts."""
    higher_is_better: bool
    seconds: float
    """Seconds for which the probe takes samples."""
    run: str
    """`module:function` of the probe's `Run`. Only the child process imports the module."""
    memory: int = 512 * 2**20
    """Maximum bytes by which the child's address space may grow; 0 for no limit."""
    accelerator_use: AcceleratorUse = AcceleratorUse.NONE
    one_thread: bool = False
    """True if numeric libraries must use a single thread."""


def sample_numbers(seconds: float, minimum: int = 3) -> Iterator[int]:
    """Yield 0, 1, 2 ... for one sample each, until `seconds` have passed. Yield at least `minimum` and at
    most MAX_SAMPLES numbers.
    """
    end = time.monotonic() + seconds
    for count in range(MAX_SAMPLES):
        if count >= minimum and time.monotonic() >= end:
            return
        yield count
