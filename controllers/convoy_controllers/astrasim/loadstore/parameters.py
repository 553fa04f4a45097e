"""The parameters of a run: GPUs, fabric and collective. Times are ns; 1 byte/ns is 1 GB/s of 10^9 bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from convoy_controllers.astrasim.parameters import CollectiveType


class Fabric(StrEnum):
    """Topology of the links between the GPUs."""

    SWITCH = "Switch"
    """Each GPU has one link to a switch and one from it. A line crosses two links."""
    FULLY_CONNECTED = "FullyConnected"
    """Each ordered pair of GPUs has a link."""
    RING = "Ring"
    """Each GPU has a link to either neighbour. A line takes the shorter way, in a tie clockwise."""


class Algorithm(StrEnum):
    """Algorithm of a collective."""

    ONE_SHOT = "oneShot"
    """All-reduce in one phase: each GPU moves the whole message of every peer."""
    TWO_SHOT = "twoShot"
    """All-reduce in two phases: a direct reduce-scatter, then a direct all-gather."""
    RING = "ring"
    """Each GPU exchanges data with its neighbours only, in as many phases as there are peers; all-reduce
    needs twice as many.
    """
    DIRECT = "direct"
    """One phase, in which each GPU moves the shard of every peer."""


class Access(StrEnum):
    """Side of a transfer that moves the data."""

    PUT = "put"
    """The sender stores to the peer, waits for the acknowledgements (fence), then sets a flag. The receiver
    waits for the flag, then reduces from its own memory.
    """
    GET = "get"
    """The sender sets a flag when its data are ready. The receiver waits for the flag, then loads, and
    reduces each line as it arrives.
    """


class Sync(StrEnum):
    """Scope of a flag."""

    WORKGROUP = "workgroup"
    """Each workgroup sets and awaits the flags of its own slice, and runs ahead of the others."""
    GPU = "gpu"
    """All workgroups of a GPU join a barrier, and the first one sets and awaits the flags of all."""


class Mode(StrEnum):
    """Way in which the time is found."""

    HYBRID = "hybrid"
    """Events up to `seam` bytes, closed form above."""
    EVENTS = "events"
    """Each line is an event."""
    ANALYTICAL = "analytical"
    """Closed form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU and its kernel. Times and latencies are in nanoseconds."""

    compute_units: int = 128
    """Workgroups that can run at once. Workgroups wait for those of peers, so all must run at once."""
    workgroups: int = 64
    outstanding: int = 128
    """Lines of a workgroup in flight."""
    line: int = 128
    """Bytes of a cache line."""
    issue: float = 1.0
    """Time between two requests of a workgroup."""
    cache: float = 200.0
    """Latency between a workgroup and its GPU's memory or links."""
    memory: float = 300.0
    """Latency of the memory that a request reaches."""
    reduce: float = 1.0
    """Time in which a workgroup reduces a line."""
    barrier: float = 200.0
    """Time of a barrier after the last workgroup has joined it."""
    launch: float = 3000.0
    """Latency of the kernel's launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links between the GPUs."""

    fabric: Fabric = Fabric.SWITCH
    gpus: int = 8
    bandwidth: float = 450.0
    """Bytes per ns of a link and direction."""
    latency: float = 250.0
    """Latency of a link."""
    header: int = 0
    """Bytes of each message beside its data. Requests, acknowledgements and flags have no data."""
    burst: int = 0
    """Bytes of a token bucket that fills at the link's bandwidth. 0: lines strictly follow each other."""
    control_first: bool = True
    """Requests, acknowledgements and flags have a virtual channel of their own. They take bandwidth, but do
    not wait for the data before them.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One collective on given GPUs and links."""

    collective: CollectiveType = CollectiveType.ALL_REDUCE
    algorithm: Algorithm = Algorithm.ONE_SHOT
    access: Access = Access.PUT
    size: int = 65_536
    """Bytes on each GPU. For an all-gather: bytes that each GPU contributes."""
    sync: Sync = Sync.WORKGROUP
    mode: Mode = Mode.HYBRID
    seam: int = 1 << 20
    """Size up to which the mode `hybrid` plays events."""
    gpu: Gpu = field(default_factory=Gpu)
    links: Links = field(default_factory=Links)


@dataclass(frozen=True, slots=True)
class Skew:
    """A difference between the GPUs. A run with any plays the events of every GPU."""

    launch: tuple[float, ...]
    """Time after which each GPU launches its kernel."""
    slow: tuple[float, ...]
    """Factor of all latencies and times within each GPU."""
