"""Inputs of a decision about a sweep, in addition to the stored status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from convoy_crds.nodehealth import Provenance

INVENTORY = "inventory"
"""The metric whose facts determine a node's class."""
BANDWIDTH = "pair-bandwidth"
"""The metric of pair tests."""
METRICS = {
    "cpu-gemm": ("GFLOP/s", True),
    "memory-copy": ("GB/s", True),
    "jitter": ("us", False),
    "loopback": ("MB/s", True),
    "disk-write": ("MB/s", True),
    "disk-read": ("MB/s", True),
    "fingerprint": ("", True),
    "gemm": ("TFLOP/s", True),
    "hbm": ("GB/s", True),
    "pcie-h2d": ("GB/s", True),
    "pcie-d2h": ("GB/s", True),
    "nvlink": ("GB/s", True),
    "nccl": ("GB/s", True),
    "gpu-fingerprint": ("", True),
}
"""Metrics of single nodes: the unit, and whether higher is better. Agents do not decide that."""
MOST_ACCELERATORS = 16
"""Most accelerators of one node. A class has room for the rows of four such nodes."""


class End(StrEnum):
    """Outcome of a test."""

    MEASURED = "Measured"
    NOT_AVAILABLE = "NotAvailable"
    """The node lacks the device that the test measures."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    HUNG = "Hung"
    """Even SIGKILL does not end it."""
    CRASHED = "Crashed"
    OUT_OF_MEMORY = "OutOfMemory"
    GARBAGE = "Garbage"
    NO_OUTPUT = "NoOutput"


class OrderState(StrEnum):
    """Progress of a node with an order."""

    RUNNING = "Running"
    DONE = "Done"
    CANCELLED = "Cancelled"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of one test."""

    metric: str
    end: End = End.MEASURED
    accelerator: int | None = None
    """Index of the accelerator; None for the node as a whole."""
    unit: str = ""
    higher_is_better: bool = True
    samples: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    message: str = ""

    def row(self, hardware: str) -> str:
        """Return its row name in the class."""
        return hardware if self.accelerator is None else f"{hardware}/{self.accelerator}"

    @property
    def label(self) -> str:
        """Return its name within the node."""
        return self.metric if self.accelerator is None else f"{self.metric}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report on one order so far."""

    state: OrderState
    message: str = ""
    """Why the order was refused, or the tests stopped early."""
    metrics: tuple[Measurement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """Digest of the facts that a class has in common: the name of the class. Empty before the inventory."""
    provenance: Provenance | None = None

    @property
    def over(self) -> bool:
        """Return True if no further results will come."""
        return self.state in (OrderState.DONE, OrderState.CANCELLED)


ReportLookup = Callable[[str, str], NodeReport | None]
"""Maps (node, order name) to that node's report on the order; None without a report."""


@dataclass(frozen=True, slots=True)
class SweepNode:
    """A node that can be swept."""

    name: str
    hardware: str = ""
    """Name of its NodeHealth; empty while it is unknown."""
    rack: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """Address at which its agent serves other agents."""
    agent_connected: bool = False
    """True while the hub receives heartbeats of the node's agent."""
    pods: int = 0
    """Number of jobs' pods on it."""


@dataclass(frozen=True, slots=True)
class Order:
    """Tests that one node must run. Sending an order again does not start it twice."""

    node: str
    name: str
    tiers: tuple[str, ...]
    probes: tuple[str, ...] = ()
    """Selected tests of these tiers; empty for all."""
    seconds: int = 0
    """Deadline in seconds."""
    partner: str = ""
    """The other node of a pair test."""
    measures: bool = True
    """True for the measuring node of a pair; its partner only responds."""
