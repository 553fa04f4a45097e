"""Times the operator's own search for places, on the rooms that the operator sees."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from convoy_controllers.cached import Node
from convoy_controllers.placement.placing import place
from convoy_controllers.placement.requests import subtract
from convoy_controllers.placement.rooms import NodeRoom
from convoy_controllers.trainingjob.pods import pod
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import views
from e2e.bench.rig.api import Object
from e2e.bench.rig.rig import Rig


async def read_nodes(rig: Rig) -> list[Node]:
    """Return the nodes as the operator caches them."""
    return [views.node(raw) for raw in (await rig.api.get("/api/v1/nodes"))["items"]]


def seconds(nodes: Sequence[Node], used_cpus: Mapping[str, int], body: Object) -> float:
    """Return the seconds of one decision: read the room of all nodes, and choose the nodes of all pods.

    `used_cpus`: processors that pods request, by name of the node. `body`: a TrainingJob without pods.
    """
    metadata = {**body["metadata"], "uid": "0"}
    job = TrainingJob.model_validate({**body, "metadata": metadata})
    manifests = [pod(job, None, slot) for slot in slots(job)]
    began = time.perf_counter()
    rooms = {}
    for node in nodes:
        free = dict(node.allocatable)
        subtract(free, {"cpu": 1000 * used_cpus.get(node.name, 0)})
        rooms[node.name] = NodeRoom(node, free)
    placed = place(job.spec.placement, rooms, manifests, ())
    took = time.perf_counter() - began
    if placed.held is not None or len(placed.pods) != len(manifests):
        raise ValueError(f"no places for {metadata['name']}: {placed.held}")
    return took


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[-1]
