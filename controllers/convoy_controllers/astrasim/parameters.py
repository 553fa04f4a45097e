"""The parameters of a simulation: network, system, options and workload.

Units follow ASTRA-sim: a link's bandwidth in GB/s with GB = 2^30 bytes, memory bandwidth in GB/s with
GB = 10^9 bytes, latency and delays in ns, durations of computation in us.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from convoy_controllers.astrasim.network.fabrics.fabric import Fabric


class Backend(StrEnum):
    """Network model."""

    UNAWARE = "unaware"
    """Messages never share a link: latency times hops plus size over bandwidth."""
    AWARE = "aware"
    """Each directed link sends one message at a time; hops store and forward."""
    FAIR_SHARE = "fairShare"
    """All messages on a directed link share its bandwidth, with max-min fairness."""


class Topology(StrEnum):
    """Physical topology of one dimension of the network."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class CollectiveType(StrEnum):
    """A collective that the simulator plays message by message, or as a fixed duration (broadcast)."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"


class AlgorithmKind(StrEnum):
    """Algorithm of a collective within one dimension."""

    RING = "ring"
    DIRECT = "direct"
    HALVING_DOUBLING = "halvingDoubling"
    DOUBLE_BINARY_TREE = "doubleBinaryTree"


class SchedulingPolicy(StrEnum):
    """Order of the chunks of collectives in a queue."""

    LIFO = "LIFO"
    FIFO = "FIFO"
    EXPLICIT = "EXPLICIT"


class Optimization(StrEnum):
    """Order of the phases of an all-reduce over several dimensions."""

    BASELINE = "baseline"
    """A whole all-reduce in each dimension in turn."""
    LOCAL_BANDWIDTH_AWARE = "localBWAware"
    """Reduce-scatter up the dimensions, all-reduce in the last one, all-gather down."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of the network."""

    topology: Topology
    ranks: int
    bandwidth: float
    """GB/s of a link and direction."""
    latency: float
    """ns of a hop."""


@dataclass(frozen=True, slots=True)
class Network:
    """The physical network. Dimension 0 is the fastest in the number of a rank."""

    backend: Backend
    dimensions: tuple[Dimension, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of ranks in each logical dimension of collectives."""
        return tuple(one.ranks for one in self.dimensions)

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class GraphNetwork:
    """A physical network of directed links."""

    backend: Backend
    fabric: Fabric
    sizes: tuple[int, ...]
    """Number of ranks in each logical dimension of collectives; dimension 0 is the fastest in a rank."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.fabric.ranks


AnyNetwork = Network | GraphNetwork


@dataclass(frozen=True, slots=True)
class Implementation:
    """The algorithm of a collective in one dimension."""

    kind: AlgorithmKind
    window: int | None = None
    """Messages that a direct algorithm sends at once; None for all peers."""
    flat: bool = False
    """True for one logical dimension over all ranks (oneRing, oneDirect, oneHalvingDoubling)."""


@dataclass(frozen=True, slots=True)
class SharedBus:
    """LogGP parameters of the bus between a processor and its memory."""

    latency: int = 0
    """L: ns of a transfer beside its bytes."""
    overhead: int = 0
    """o: ns at each end of a transfer."""
    gap: int = 0
    """g: least ns between the starts of two transfers."""
    gap_per_byte: float = 0.0
    """G: ns per byte."""
    reduction_delay: int = 1
    """ns of a reduction of 100 bytes."""


@dataclass(frozen=True, slots=True)
class System:
    """The system layer's settings."""

    implementations: Mapping[CollectiveType, tuple[Implementation, ...]]
    """For each collective, one entry per dimension. Dimensions without an entry do not take part."""
    splits: int
    """Number of chunks into which a collective is split."""
    memory_bandwidth: float
    """GB/s; a reduction of n bytes moves 3n bytes."""
    endpoint_delay: int = 10
    """ns between the arrival of data and the next message that depends on it."""
    active_chunks: int = 1
    """Chunks of a rank that run at once in a dimension."""
    policy: SchedulingPolicy = SchedulingPolicy.LIFO
    optimization: Optimization = Optimization.BASELINE
    roofline: bool = False
    """True: a GPU node's duration follows from its operations and bytes."""
    peak_performance: float = 0.0
    """10^12 operations per second."""
    shared_bus: SharedBus | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run."""

    queues: int = 1
    """Queues of each dimension."""
    rendezvous: bool = False
    """True: the receiver sends 8,192 bytes before the sender sends a message."""


@dataclass(frozen=True, slots=True)
class ComputeNode:
    """A computation in the trace of a rank."""

    id: int
    deps: tuple[int, ...] = ()
    duration_us: int = 0
    on_cpu: bool = False
    operations: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CollectiveNode:
    """A collective operation in the trace of a rank."""

    id: int
    type: CollectiveType
    size: int
    """Bytes on each rank; for an all-gather, the bytes that each rank contributes."""
    deps: tuple[int, ...] = ()
    group: int | None = None
    """Number of the communication group; None for all ranks."""
    priority: int = 0
    involved: tuple[bool, ...] | None = None
    """For each dimension, True if it takes part; None for all."""
    duration_us: int = 0
    """Duration of a broadcast."""


@dataclass(frozen=True, slots=True)
class MessageNode:
    """A send or a receive between two ranks."""

    id: int
    send: bool
    peer: int
    size: int
    tag: int = 0
    deps: tuple[int, ...] = ()


Node = ComputeNode | CollectiveNode | MessageNode


@dataclass(frozen=True, slots=True)
class Workload:
    """The nodes of each rank."""

    ranks: tuple[tuple[Node, ...], ...]
    """The nodes of each rank; the same tuple for every rank if all ranks run the same nodes."""
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of each communication group, in ring order."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Everything that determines the figures of a run."""

    network: AnyNetwork
    system: System
    workload: Workload
    options: Options = Options()
