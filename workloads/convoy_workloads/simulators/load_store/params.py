"""Parameters of the simulator load-store."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model

Duration = Annotated[float, Field(ge=0, le=1e9)]


class Gpu(Model):
    """A GPU and its kernel."""

    compute_units: Annotated[int, Field(ge=1, le=4096)] = 128
    """Workgroups that can run at once."""
    workgroups: Annotated[int, Field(ge=1, le=4096)] = 64
    """Workgroups of the kernel, at most `computeUnits`. Each one moves its slice of the message."""
    outstanding: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Lines of a workgroup in flight."""
    line: Annotated[int, Field(alias="lineBytes", ge=32, le=256)] = 128
    """Bytes of a cache line: 32, 64, 128 or 256."""
    issue: Annotated[Duration, Field(alias="issueNs")] = 1.0
    """Time between two requests of a workgroup."""
    cache: Annotated[Duration, Field(alias="cacheNs")] = 200.0
    """Latency between a workgroup and its GPU's memory or links."""
    memory: Annotated[Duration, Field(alias="memoryNs")] = 300.0
    """Latency of the memory that a request reaches."""
    reduce: Annotated[Duration, Field(alias="reduceNs")] = 1.0
    """Time in which a workgroup reduces a line."""
    barrier: Annotated[Duration, Field(alias="barrierNs")] = 200.0
    """Time of a barrier after the last workgroup has joined it."""
    launch: Annotated[Duration, Field(alias="launchNs")] = 3000.0
    """Latency of the kernel's launch."""


class Links(Model):
    """The links between the GPUs."""

    fabric: Literal["Switch", "FullyConnected", "Ring"] = "Switch"
    """`Switch`: one link to a switch and one from it for each GPU. `FullyConnected`: a link for each ordered
    pair. `Ring`: a link to either neighbour.
    """
    gpus: Annotated[int, Field(ge=2, le=1024)] = 8
    """Number of GPUs."""
    bandwidth: Annotated[float, Field(alias="bytesPerNs", ge=0.001, le=1e6)] = 450.0
    """Bandwidth of a link and direction. 1 byte/ns is 1 GB/s of 10^9 bytes."""
    latency: Annotated[float, Field(alias="latencyNs", ge=0.001, le=1e9)] = 250.0
    """Latency of a link."""
    header: Annotated[int, Field(alias="headerBytes", ge=0, le=4096)] = 0
    """Bytes of each message beside its data. Requests, acknowledgements and flags have no data."""
    burst: Annotated[int, Field(alias="burstBytes", ge=0, le=1 << 30)] = 0
    """Bytes of a token bucket that fills at the link's bandwidth. 0: lines strictly follow each other."""
    control_first: bool = True
    """Requests, acknowledgements and flags do not wait for the data before them."""


class Params(Model):
    """One collective, moved by loads or stores of cache lines."""

    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"] = "all_reduce"
    """The collective."""
    algorithm: Literal["oneShot", "twoShot", "ring", "direct"] = "oneShot"
    """`oneShot`, `twoShot` or `ring` of an all-reduce; `direct` or `ring` of the others, but an all-to-all is
    `direct`.
    """
    access: Literal["put", "get"] = "put"
    """`put`: stores, fence and flag. `get`: flag and loads, which overlap the reduction."""
    size: Annotated[int, Field(alias="bytes", ge=1, le=1 << 40)] = 65_536
    """Bytes on each GPU; for an all-gather, bytes that each GPU contributes."""
    sync: Literal["workgroup", "gpu"] = "workgroup"
    """Scope of the flags: those of each workgroup, or of the GPU between two barriers."""
    mode: Literal["hybrid", "events", "analytical"] = "hybrid"
    """`events`: each line is an event. `analytical`: closed form. `hybrid`: events up to `seamBytes`."""
    seam: Annotated[int, Field(alias="seamBytes", ge=1, le=1 << 30)] = 1 << 20
    """Size up to which the mode `hybrid` plays events."""
    gpu: Gpu = Field(default_factory=Gpu)
    """The GPUs."""
    links: Links = Field(default_factory=Links)
    """The links."""
    launch_skew: Annotated[Duration, Field(alias="launchSkewNs")] = 500.0
    """Each GPU launches later by a random time of up to this one, which the seed decides. Above 0 each line
    of every GPU is an event, whatever `mode` says.
    """
