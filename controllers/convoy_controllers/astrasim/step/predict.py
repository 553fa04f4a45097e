"""Predicts the time of a step: simulates computation and all-reduces of all ranks on shared links."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from convoy_controllers.astrasim.network.fabrics.fabric import Fabric
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    GraphNetwork,
    Implementation,
    Node,
    Simulation,
    System,
    Workload,
)
from convoy_controllers.astrasim.result import LinkUse
from convoy_controllers.astrasim.run import EVENTS, run
from convoy_controllers.astrasim.step.shape import StepShape

MEMORY = 1600.0
"""GB/s of a rank's memory, with GB = 10^9 bytes. It limits the additions of an all-reduce."""
ENDPOINT_NS = 10
_NS = 1e9


class CannotPredict(ValueError):
    """Raised for a step that the simulator cannot play to its end."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted step."""

    seconds: float
    """Time of the last rank."""
    exposed_seconds: float
    """Time of the last rank beside its computation."""
    communication_seconds: float
    """Time in which at least one all-reduce of the last rank runs."""
    bottleneck: LinkUse | None
    """The busiest link; None if nothing is sent."""


def predict(
    shape: StepShape,
    fabric: Fabric,
    algorithm: AlgorithmKind = AlgorithmKind.RING,
    *,
    memory: float = MEMORY,
    endpoint_ns: int = ENDPOINT_NS,
    events: int = EVENTS,
) -> Prediction:
    """Return the predicted step. Raises CannotPredict if it cannot end, or not within `events` events."""
    simulation = Simulation(
        GraphNetwork(Backend.FAIR_SHARE, fabric, (fabric.ranks,)),
        System(
            {CollectiveType.ALL_REDUCE: (Implementation(algorithm),)}, 1, memory, endpoint_delay=endpoint_ns
        ),
        Workload((nodes(shape),) * fabric.ranks),
    )
    result = run(simulation, events)
    if result.findings:
        raise CannotPredict(str(result.findings[0]))
    last = max((one for one in result.ranks if one is not None), key=lambda one: one.finish)
    return Prediction(
        last.finish / _NS,
        last.exposed / _NS,
        (last.communication or 0) / _NS,
        result.links[0] if result.links else None,
    )


def nodes(shape: StepShape) -> tuple[Node, ...]:
    """Return the nodes of a rank. Its all-reduces are issued in the order of their buckets."""
    numbers = count(1)
    found: list[Node] = []
    reduced: list[int] = []
    head = next(numbers)
    found.append(ComputeNode(head, (), round(shape.head_seconds * 1e6)))
    before: tuple[int, ...] = (head,)
    for one in shape.reductions:
        ready, reduction = next(numbers), next(numbers)
        found.append(ComputeNode(ready, before, round(one.seconds * 1e6)))
        found.append(CollectiveNode(reduction, CollectiveType.ALL_REDUCE, one.bytes, deps=(ready,)))
        reduced.append(reduction)
        before = (ready,) if shape.overlaps else (ready, reduction)
    found.append(ComputeNode(next(numbers), (*before[:1], *reduced), round(shape.tail_seconds * 1e6)))
    return tuple(found)
