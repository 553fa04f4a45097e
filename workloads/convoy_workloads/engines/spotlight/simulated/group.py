"""Groups of simulated nodes that compute samples together, and the time that this takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from convoy_workloads.engines.spotlight.params import Algorithm, Cluster, Systems
from convoy_workloads.spot.ledger.request import Lease

PAIR = 2
"""Degree of sequence parallelism of groups that cannot change it."""


@dataclass(slots=True)
class Node:
    """A spot node that runs. Times are in seconds of the virtual clock."""

    name: str
    end: float
    """Time of the end, as far as the workers know it; infinity before the notice."""
    ready: bool = False
    """True after the boot."""
    version: int = -1
    """Version of the weights on the node; -1 for none."""
    group: str = ""
    """Name of the node's group; empty if it has none."""
    started: float = 0.0
    """Time of the start. The boot begins."""


@dataclass(slots=True)
class Group:
    """Nodes that compute one request at a time, each a part of the tokens. Times are in seconds of the
    virtual clock.
    """

    name: str
    nodes: list[str]
    """Names of the spot nodes; empty for on-demand accelerators."""
    degree: int
    token: int = 0
    """Counts the units of work that the group has begun. An event with an earlier number is ignored, because
    its work was abandoned.
    """
    busy: bool = False
    """True while the group forms, copies weights or computes."""
    lease: Lease | None = None
    began: float = 0.0
    """Time at which the present request began or was resumed."""
    first_step: int = 0
    share: int = 0
    """Number of rollouts that are left of the group's share, if the work is dealt out."""

    @property
    def spot(self) -> bool:
        """Return True for spot nodes."""
        return bool(self.nodes)


@dataclass(frozen=True, slots=True)
class Costs:
    """Times of the work."""

    cluster: Cluster
    steps: int
    """Denoising steps of a sample."""
    step_seconds: dict[int, float] = field(default_factory=dict)
    """Time of one denoising step by degree."""

    regroup_seconds: float = 0.0
    """Seconds in which nodes form another group."""

    @staticmethod
    def of(params: Algorithm, cluster: Cluster, systems: Systems) -> Costs:
        """Return the times for these parameters."""
        degrees = {1, PAIR, *params.sequence_parallel}
        one = cluster.sample_seconds / params.sampler_steps
        step = {degree: one / (degree * cluster.split_efficiency ** math.log2(degree)) for degree in degrees}
        regroup = cluster.regroup_seconds if systems.warm else cluster.cold_regroup_seconds
        return Costs(cluster, params.sampler_steps, step, regroup)

    def seconds(self, degree: int, first_step: int = 0) -> float:
        """Return the seconds of a request from a step on, with the computation of its reward."""
        return (self.steps - first_step) * self.step_seconds[degree] + self.cluster.reward_seconds

    def steps_until(self, group: Group, now: float) -> int:
        """Return the number of the request's steps that the group has finished."""
        done = int((now - group.began) / self.step_seconds[group.degree] + 1e-9)
        return min(self.steps, group.first_step + done)


def degree_for(nodes: int, pending: int, degrees: Sequence[int], current: int, costs: Costs) -> int:
    """Return the degree with which `nodes` nodes finish `pending` requests first; 0 if there are too few
    nodes. A change from the `current` degree has its price. Of equal degrees the smallest one wins.
    """
    possible = [one for one in sorted(degrees) if one <= nodes]

    def seconds(degree: int) -> float:
        change = costs.regroup_seconds if current not in (0, degree) else 0.0
        return change + math.ceil(max(1, pending) / (nodes // degree)) * costs.seconds(degree)

    return min(possible, key=seconds, default=0)
