"""The detector's report on one window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from convoy_controllers.guard.channels import Channel, FindingPlace
from convoy_controllers.guard.loss import Shares
from convoy_crds.trainingjob_straggler import Proof


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
    """The rank has too few peers for a verdict other than a suspicion."""
    VICTIM = 3
    """The rank waits for other ranks, and the window has a finding that blames ranks."""
    SUSPECT = 4
    PERSISTENT = 5
    """The rank has been slow in most windows for a long time, compared with at least three peers. Only this
    verdict permits an action.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is slow (ranks, a place or the job), and the cause."""

    cause: Cause
    place: FindingPlace
    ranks: tuple[int, ...]
    """Blamed ranks; empty if no rank is blamed."""
    where: tuple[int, ...]
    """Numbers of nodes, racks, classes or replicas, according to `place`."""
    since: int
    """Step at which the slowness started."""
    slowdown: float
    """Extra time as a share: 0.1 is 10 %. The share is relative to the step's compute for input and host,
    and to the transfer for communication.
    """
    lost: float
    """Upper limit of the seconds that each rank would have saved in this window without the slowness."""
    persistent: bool
    proof: Proof = Proof.PEERS
    """Basis on which the ranks are blamed. No action on a node may follow from few peers."""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Findings and verdicts of one window."""

    first: int
    last: int
    findings: tuple[Finding, ...]
    verdicts: NDArray[np.int8]
    """The Verdict on each rank."""
    model: Channel
    sigma: float
    """Standard deviation of a healthy rank's compute residual in one window."""
    shares: Shares
