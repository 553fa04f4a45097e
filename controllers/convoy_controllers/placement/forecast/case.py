"""A case to simulate: the step of a job whose ranks run on given nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from convoy_controllers.astrasim.network.fabrics.fabric import Link, duplex
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph
from convoy_controllers.astrasim.parameters import AlgorithmKind
from convoy_controllers.astrasim.step.predict import Prediction, predict
from convoy_controllers.astrasim.step.shape import Reduction, StepShape, with_buckets
from convoy_controllers.placement.forecast.links import host_rate, uplink_rate
from convoy_controllers.placement.topology import Topology
from convoy_crds.placement import Step

MOST_RANKS = 64
LOCAL_RATE = 200.0
"""Assumed GB/s between a rank and the other ranks of its node."""
HOST_NS, UPLINK_NS = 5_000.0, 5_000.0
"""Assumed latencies of links with the work of the hosts, in ns."""


@dataclass(frozen=True, slots=True)
class Case:
    """A step on hosts in racks. Equal cases have equal predictions, on whatever nodes the ranks run."""

    shape: StepShape
    algorithm: AlgorithmKind
    ranks: tuple[int, ...]
    """Number of each rank's host."""
    racks: tuple[int, ...]
    """Number of each host's rack."""
    hosts: tuple[float, ...]
    """GB/s of each host's link to its rack."""
    uplinks: tuple[float, ...]
    """GB/s of each rack's link to the spine. Empty if all hosts are in one rack."""

    def predict(self) -> Prediction:
        """Simulate the step. Raises CannotPredict."""
        return predict(self.shape, self._fabric(), self.algorithm)

    def dump(self) -> str:
        """Return the case as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Case:
        """Return the case of a JSON text."""
        found: dict[str, Any] = json.loads(text)
        shape = found.pop("shape")
        reductions = tuple(Reduction(**one) for one in shape.pop("reductions"))
        lists = {name: tuple(found[name]) for name in ("ranks", "racks", "hosts", "uplinks")}
        return cls(StepShape(reductions, **shape), AlgorithmKind(found["algorithm"]), **lists)

    def _fabric(self) -> LinkGraph:
        hosts, racks = len(self.hosts), len(self.uplinks) or 1
        first_host = len(self.ranks)
        first_rack, spine = first_host + hosts, first_host + hosts + racks
        links: list[Link] = []
        for rank, host in enumerate(self.ranks):
            links += duplex(rank, first_host + host, LOCAL_RATE, 0.0)
        for host, rate in enumerate(self.hosts):
            links += duplex(first_host + host, first_rack + self.racks[host], rate, HOST_NS)
        for rack, rate in enumerate(self.uplinks):
            links += duplex(first_rack + rack, spine, rate, UPLINK_NS)
        names = [f"node-{host}" for host in range(hosts)] + [f"rack-{rack}" for rack in range(racks)]
        return LinkGraph(first_host, [*names, "spine"] if self.uplinks else names, links)


def shape_of(step: Step) -> StepShape:
    """Return the step that a job describes."""
    gradients = Reduction(step.backward_milliseconds / 1e3, step.gradient_bytes)
    whole = StepShape((gradients,), step.forward_milliseconds / 1e3, step.optimizer_milliseconds / 1e3)
    return with_buckets(whole, step.bucket_bytes)


def case_of(
    step: Step, nodes: Sequence[str], found: Topology, labels: Mapping[str, Mapping[str, str]]
) -> Case:
    """Return the case of ranks on these nodes, in rank order. Racks are the domains of the first topology
    key. Raises UnknownLink.
    """
    hosts = {name: number for number, name in enumerate(dict.fromkeys(nodes))}
    domains = {
        domain: number for number, domain in enumerate(dict.fromkeys(found.domain(one, 0) for one in hosts))
    }
    first = {found.domain(name, 0): name for name in reversed(hosts)}
    return Case(
        shape_of(step),
        AlgorithmKind.RING,
        tuple(hosts[name] for name in nodes),
        tuple(domains[found.domain(name, 0)] for name in hosts),
        tuple(host_rate(name, labels[name]) for name in hosts),
        tuple(uplink_rate(first[one], labels[first[one]]) for one in domains) if len(domains) > 1 else (),
    )
