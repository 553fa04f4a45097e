"""Parameters of the simulator astrasim."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convoy_crds.meta import Model

MOST_RANKS = 1024
MOST_LINKS = 4096
MOST_MESSAGES = 5_000_000
"""Messages of a run, about a minute."""
Node = Annotated[int, Field(ge=0, lt=MOST_RANKS)] | Annotated[str, Field(min_length=1, max_length=253)]


class NetworkDimension(Model):
    """One dimension of the network."""

    topology: Literal["Ring", "FullyConnected", "Switch"] = "Switch"
    """Topology of the dimension."""
    ranks: Annotated[int, Field(ge=2, le=MOST_RANKS)] = 8
    """Number of ranks in the dimension."""
    bandwidth: Annotated[float, Field(ge=1e-6, le=100_000, alias="bandwidthGBps")] = 50.0
    """Bandwidth of a link and direction in GB/s, with GB = 2^30 bytes."""
    latency: Annotated[float, Field(ge=0, le=1e9, alias="latencyNs")] = 500.0
    """Latency of a hop."""
    all_reduce: Annotated[
        str, Field(pattern=r"^(ring|direct([1-9][0-9]{0,3})?|halvingDoubling|doubleBinaryTree)$")
    ] = "ring"
    """Algorithm of the all-reduce: `ring`, `direct`, `halvingDoubling` or `doubleBinaryTree`. `direct4` sends
    four messages at once."""


class NetworkLink(Model):
    """A link of the fabric `graph`. A whole number is a rank, a text the name of a switch."""

    start: Annotated[Node, Field(alias="from")]
    """Node at which the link starts."""
    end: Annotated[Node, Field(alias="to")]
    """Node at which the link ends."""
    bandwidth: Annotated[float, Field(ge=1e-6, le=100_000, alias="bandwidthGBps")]
    """Bandwidth in GB/s, with GB = 2^30 bytes."""
    latency: Annotated[float, Field(ge=0, le=1e9, alias="latencyNs")]
    """Latency of the link."""
    duplex: bool = True
    """True for a link in each direction."""


class Params(Model):
    """A data-parallel step: forward, backward with an all-reduce of each bucket of gradients, optimizer."""

    dimensions: Annotated[list[NetworkDimension], Field(min_length=1, max_length=4)] = Field(
        default_factory=lambda: [NetworkDimension()]
    )
    """Dimensions of the network, the fastest in the number of a rank first."""
    network: Literal["unaware", "aware", "fairShare"] = "unaware"
    """`aware`: each directed link sends one message at a time. `fairShare`: messages share a link's
    bandwidth. With several dimensions both need a fabric."""
    fabric: Literal["mesh", "torus", "fatTree", "graph"] | None = None
    """Physical links in place of the dimensions' topologies. `mesh`, `torus`: links between neighbours in
    each dimension. `fatTree`: k^3/4 ranks for an even k; all links have dimension 0's bandwidth and latency.
    `graph`: the `links`."""
    links: Annotated[list[NetworkLink], Field(max_length=MOST_LINKS)] = Field(default_factory=list)
    """Links of the fabric `graph`. Messages take the path of the fewest hops."""
    splits: Annotated[int, Field(ge=1, le=256)] = 4
    """Chunks of an all-reduce."""
    active_chunks: Annotated[int, Field(ge=1, le=256)] = 2
    """Chunks that run at once in a dimension."""
    local_bandwidth_aware: bool = True
    """Reduce-scatter up the dimensions and all-gather down, instead of an all-reduce in each dimension."""
    endpoint_delay: Annotated[int, Field(ge=1, le=10**9, alias="endpointDelayNs")] = 10
    """Time between the arrival of data and the message that depends on it."""
    memory_bandwidth: Annotated[float, Field(ge=1e-6, le=1e6, alias="memoryGBps")] = 1600.0
    """Bandwidth of a rank's memory in GB/s, with GB = 10^9 bytes. It limits reductions."""
    buckets: Annotated[int, Field(ge=1, le=64)] = 4
    """Buckets of gradients. The all-reduce of a bucket runs beside the backward pass of the later ones."""
    bucket_bytes: Annotated[int, Field(ge=1, le=1 << 34)] = 26_214_400
    """Bytes of a bucket."""
    forward_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.004
    """Duration of the forward pass."""
    backward_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.008
    """Duration of the backward pass."""
    optimizer_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.001
    """Duration of the optimizer step, after all all-reduces."""
    noise: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Standard deviation of a rank's computation, as a fraction of its duration. The seed decides."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        ranks = math.prod(one.ranks for one in self.dimensions)
        if ranks > MOST_RANKS:
            raise ValueError(f"dimensions: may have at most {MOST_RANKS} ranks in all, have {ranks}")
        self._check_network(ranks)
        for number, one in enumerate(self.dimensions):
            if one.all_reduce in {"halvingDoubling", "doubleBinaryTree"} and one.ranks & (one.ranks - 1):
                raise ValueError(
                    f"dimensions[{number}].allReduce: {one.all_reduce} needs a power of two of ranks, "
                    f"has {one.ranks}"
                )
        most = ranks * self.buckets * self.splits * sum(2 * (one.ranks - 1) for one in self.dimensions)
        if most > MOST_MESSAGES:
            raise ValueError(
                f"the step has about {most} messages, more than {MOST_MESSAGES}: "
                "use fewer ranks, buckets or splits"
            )
        return self

    def _check_network(self, ranks: int) -> None:
        if self.fabric is None and self.network != "unaware":
            if len(self.dimensions) > 1:
                raise ValueError(
                    f"dimensions: the network {self.network} has one dimension, or needs a fabric"
                )
            if self.network == "aware" and self.dimensions[0].topology == "Ring" and ranks == 2:
                raise ValueError("dimensions: a Ring of the network aware needs at least 3 ranks")
        if (self.fabric == "graph") != bool(self.links):
            raise ValueError("links: the fabric graph needs links, and no other network has any")
        for number, one in enumerate(self.dimensions):
            if self.fabric is not None and "topology" in one.model_fields_set:
                raise ValueError(f"dimensions[{number}].topology: has no effect, because fabric is set")
        if self.fabric == "fatTree" and not any(k**3 == 4 * ranks for k in range(2, 17, 2)):
            raise ValueError("dimensions: a fat tree has k^3/4 ranks: 2, 16, 54, 128, 250, 432, 686 or 1024")
