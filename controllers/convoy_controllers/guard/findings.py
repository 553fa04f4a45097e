"""What the detector says of one window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from convoy_controllers.guard.channels import Channel, FindingPlace
from convoy_controllers.guard.loss import Shares


class Cause(StrEnum):
    """Why it is slow."""

    COMPUTE = "Compute"
    THERMAL = "Thermal"
    COMMUNICATION = "Communication"
    INPUT = "Input"
    HOST = "Host"
    IMBALANCE = "Imbalance"
    COMMON_MODE = "CommonMode"
    UNKNOWN = "Unknown"


class Verdict(IntEnum):
    """On one rank in one window."""

    HEALTHY = 0
    SILENT = 1
    """Not heard."""
    TOO_FEW_PEERS = 2
    """It cannot be judged."""
    VICTIM = 3
    """It waits for others."""
    SUSPECT = 4
    PERSISTENT = 5
    """Slow for long, and most of that time: only this may lead to action."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is slow."""

    cause: Cause
    place: FindingPlace
    ranks: tuple[int, ...]
    """The culprits; empty: nobody is accused."""
    where: tuple[int, ...]
    """Numbers of the nodes, racks, classes or replicas, as the place says."""
    since: int
    """Step."""
    slowdown: float
    """0.1: takes 10 % longer. Of the step's own part for input and host; of the transfer for
    communication.
    """
    lost: float
    """Seconds by which the window would have been shorter for every rank, at most."""
    persistent: bool


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """On one window."""

    first: int
    last: int
    findings: tuple[Finding, ...]
    verdicts: NDArray[np.int8]
    """By rank: a Verdict."""
    model: Channel
    sigma: float
    """Noise of a rank's compute against what the model expects, in one window."""
    shares: Shares
