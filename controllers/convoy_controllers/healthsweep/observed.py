"""Inputs from which the next step of a sweep follows, in addition to the stored status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from convoy_crds.nodehealth import Provenance

INVENTORY = "inventory"
"""Name of the metric whose facts determine a node's class."""
BANDWIDTH = "pair-bandwidth"
"""Name of the metric that pair tests measure."""
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
"""Unit of each single-node metric, and True if higher is better. Convoy, not the agent, decides these."""
MOST_ACCELERATORS = 16
"""Maximum number of accelerators of a node. A class has room for the rows of four such nodes."""


class End(StrEnum):
    """The way in which a test ended."""

    MEASURED = "Measured"
    NOT_AVAILABLE = "NotAvailable"
    """The node lacks the device that the test measures."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    HUNG = "Hung"
    """The test's process does not end even after SIGKILL."""
    CRASHED = "Crashed"
    OUT_OF_MEMORY = "OutOfMemory"
    GARBAGE = "Garbage"
    NO_OUTPUT = "NoOutput"


class OrderState(StrEnum):
    """Progress of a node's work on an order."""

    RUNNING = "Running"
    DONE = "Done"
    CANCELLED = "Cancelled"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one test."""

    metric: str
    end: End = End.MEASURED
    accelerator: int | None = None
    """Index of the accelerator; None if the test covers the node as a whole."""
    unit: str = ""
    higher_is_better: bool = True
    samples: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    message: str = ""

    def row(self, hardware: str) -> str:
        """Return the name of the row in the hardware class that stores this measurement: the hardware's
        name, followed by the accelerator's index if there is one.
        """
        return hardware if self.accelerator is None else f"{hardware}/{self.accelerator}"

    @property
    def label(self) -> str:
        """Return the metric's name, followed by the accelerator's index if there is one."""
        return self.metric if self.accelerator is None else f"{self.metric}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report on one order so far."""

    state: OrderState
    message: str = ""
    """Reason why the order was refused or the tests stopped early."""
    metrics: tuple[Measurement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """Digest of the facts that all nodes of a class have in common. It is the class's name; empty until the
    inventory.
    """
    provenance: Provenance | None = None

    @property
    def over(self) -> bool:
        """Return True if no more results of the order will follow."""
        return self.state in (OrderState.DONE, OrderState.CANCELLED)


ReportLookup = Callable[[str, str], NodeReport | None]
"""Function from node name and order name to the node's report on the order; None without a report."""


@dataclass(frozen=True, slots=True)
class SweepNode:
    """A node that can be swept."""

    name: str
    hardware: str = ""
    """Name of the node's hardware; empty while it is unknown."""
    rack: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """Address at which the node's agent serves other agents."""
    agent_connected: bool = False
    """True while the hub receives heartbeats of the node's agent."""
    pods: int = 0
    """Number of pods of jobs on the node."""


@dataclass(frozen=True, slots=True)
class Order:
    """Tests that one node must run. If an order is sent twice, the agent starts the tests only once."""

    node: str
    name: str
    tiers: tuple[str, ...]
    probes: tuple[str, ...] = ()
    """Names of the tests to run; empty for all tests of the order's tiers."""
    seconds: int = 0
    """Time limit of the order, in seconds."""
    partner: str = ""
    """The other node of a pair test; empty for all other tests."""
    measures: bool = True
    """True for the measuring node of a pair; its partner only responds."""
