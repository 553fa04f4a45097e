"""The detector's report on one window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from convoy_controllers.guard.channels import Channel, FindingPlace
from convoy_controllers.guard.loss import Shares


class Cause(StrEnum):
    """Cause of a slowdown."""

    COMPUTE = "Compute"
    THERMAL = "Thermal"
    COMMUNICATION = "Communication"
    INPUT = "Input"
    HOST = "Host"
    IMBALANCE = "Imbalance"
    COMMON_MODE = "CommonMode"
    UNKNOWN = "Unknown"


class Verdict(IntEnum):
    """Verdict on one rank in one window."""

    HEALTHY = 0
    SILENT = 1
    """The rank did not report the window."""
    TOO_FEW_PEERS = 2
    """The rank cannot be judged."""
    VICTIM = 3
    """The rank waits for others."""
    SUSPECT = 4
    PERSISTENT = 5
    """Slow for long, and for most of that time. Only this verdict may lead to action."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is slow."""

    cause: Cause
    place: FindingPlace
    ranks: tuple[int, ...]
    """Blamed ranks; empty if nobody is blamed."""
    where: tuple[int, ...]
    """Numbers of the nodes, racks, classes or replicas; `place` says which."""
    since: int
    """Step at which the slowness started."""
    slowdown: float
    """Share of extra time: 0.1 is 10 %. Relative to the step's own part for input and host, to the transfer
    for communication.
    """
    lost: float
    """Seconds that every rank would have saved in this window, at most."""
    persistent: bool


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Findings and verdicts of one window."""

    first: int
    last: int
    findings: tuple[Finding, ...]
    verdicts: NDArray[np.int8]
    """A Verdict by rank."""
    model: Channel
    sigma: float
    """Noise of a rank's compute against the model's expectation in one window."""
    shares: Shares
