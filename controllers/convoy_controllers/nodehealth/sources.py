"""Reads the inputs of observations of hardware from the caches and the hub."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping

from convoy_controllers.cached import Node
from convoy_controllers.nodehealth.observe import Hardware, PlacedJob, by_node, in_order, results
from convoy_controllers.reader import Reader
from convoy_crds import guardpolicy, healthsweep, nodehealth, trainingjob
from convoy_crds.layout import present, world_size
from convoy_crds.trainingjob import GuardAction, TrainingJob


def hardware(reader: Reader) -> Hardware:
    """Return the nodes, policies, NodeHealths and reports of the whole cluster."""
    return Hardware(
        policies=in_order(reader.all(guardpolicy.KIND)),
        healths={one.metadata.name: one for one in reader.all(nodehealth.KIND)},
        bindings=reader.bindings(),
        jobs=by_node(_jobs(reader, (node.name for node in reader.nodes()))),
        suspicions=reader.hub.suspicions(),
        noticed=reader.hub.noticed(),
        swept=results(reader.all(healthsweep.KIND)),
        paces=reader.hub.paces(),
    )


def jobs_on(reader: Reader, node: str) -> list[PlacedJob]:
    """Return the jobs with pods on a node. Only their pods on this node are counted."""
    return list(_jobs(reader, (node,)))


def concern(node: Node) -> Hashable:
    """Return the fields of a node that determine its health or show it."""
    taints = tuple(tuple(sorted(taint.items())) for taint in node.taints)
    labels, shown = frozenset(node.labels.items()), tuple(sorted(node.qualified.items()))
    return node.uid, node.ready, node.agent_ready, node.cordoned, taints, labels, node.boot_id, shown


def _jobs(reader: Reader, nodes: Iterable[str]) -> Iterable[PlacedJob]:
    placed: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for pod in reader.members_on(node):
            placed[pod.kind, pod.namespace, pod.job][node] += 1
    for (kind, namespace, name), counts in placed.items():
        trains = kind == trainingjob.KIND.name
        job = reader.get(trainingjob.KIND, name, namespace) if trains else None
        yield _seen(f"{namespace}/{name}", counts, job)


def _seen(name: str, nodes: Mapping[str, int], job: TrainingJob | None) -> PlacedJob:
    if job is None:
        return PlacedJob(name, nodes, swappable=False)
    point = job.status.saved
    saves = job.spec.checkpoint.tiers.any or point is not None
    ranks = world_size(present(job)) if job.status.formed else 0
    return PlacedJob(
        name=name,
        nodes=nodes,
        gpus=max(1, ranks),
        swappable=saves and job.spec.guard.action is GuardAction.SWAP,
        saved=point.time if point is not None else None,
        formed=job.status.start_time,
    )
