"""All that a decision about a sweep may look at besides what is stored of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from convoy_crds.nodehealth import Provenance

INVENTORY = "inventory"
"""The metric whose facts say of which class a node is."""
BANDWIDTH = "pair-bandwidth"
"""The metric that pairs are compared by."""
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
"""What nodes are judged by alone, its unit, and whether higher is better: that is not for agents to say."""
MOST_ACCELERATORS = 16
"""Of one node: a class has room for the rows of four such nodes."""


class End(StrEnum):
    """How a probe ended."""

    MEASURED = "Measured"
    NOT_AVAILABLE = "NotAvailable"
    """The node lacks what it measures."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    HUNG = "Hung"
    """Not even SIGKILL ends it."""
    CRASHED = "Crashed"
    OUT_OF_MEMORY = "OutOfMemory"
    GARBAGE = "Garbage"
    NO_OUTPUT = "NoOutput"


class OrderState(StrEnum):
    """How far a node is with an order."""

    RUNNING = "Running"
    DONE = "Done"
    CANCELLED = "Cancelled"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one probe found."""

    metric: str
    end: End = End.MEASURED
    accelerator: int | None = None
    """None for what is the node's."""
    unit: str = ""
    higher_is_better: bool = True
    samples: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    message: str = ""

    def row(self, hardware: str) -> str:
        """What it is called among its class."""
        return hardware if self.accelerator is None else f"{hardware}/{self.accelerator}"

    @property
    def label(self) -> str:
        """What it is called within its node."""
        return self.metric if self.accelerator is None else f"{self.metric}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node has told of one order so far."""

    state: OrderState
    message: str = ""
    """Why it was refused."""
    metrics: tuple[Measurement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """Of the facts that a class has in common: its name. Empty before the inventory."""
    provenance: Provenance | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in (OrderState.DONE, OrderState.CANCELLED)


ReportLookup = Callable[[str, str], NodeReport | None]
"""Maps (node, order name) to the report of that node on that order; None without a report."""


@dataclass(frozen=True, slots=True)
class SweepNode:
    """A node that could be swept."""

    name: str
    hardware: str = ""
    """Its NodeHealth; empty while it is not known."""
    rack: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """Where its agent serves its peers."""
    agent_connected: bool = False
    """Whether its agent is there."""
    pods: int = 0
    """Of jobs, on it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one node is to measure. NodeReport again it is the same order."""

    node: str
    name: str
    tiers: tuple[str, ...]
    probes: tuple[str, ...] = ()
    """Of these tiers; empty for all."""
    seconds: int = 0
    """Its deadline."""
    partner: str = ""
    """The node on the other side of a test of two."""
    measures: bool = True
    """Whether it measures; its partner answers."""
