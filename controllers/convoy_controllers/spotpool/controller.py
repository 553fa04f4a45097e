"""The controller of SpotPools: it decides about all nodes and jobs of a pool together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.children import EvictPod
from convoy_controllers.controller import Controller, Makes, Pace, Watch, every
from convoy_controllers.reader import Reader
from convoy_controllers.resources import NODES, PODS, SPOT_POOLS, TRAINING_JOBS
from convoy_controllers.spotpool.observe import observe
from convoy_controllers.spotpool.plan import COST_FIELDS, plan
from convoy_crds.spotpool import KIND
from convoy_crds.terms import LABEL_SPOT_POOL
from convoy_crds.trainingjob_status import TERMINAL


def _selecting(reader: Reader, before: Node | None, after: Node | None) -> Iterable[tuple[str, str]]:
    """Return the keys of the pools that select the node, before or after the change."""
    for pool in reader.all(KIND):
        fallback = pool.spec.fallback
        selectors = [pool.spec.selector, *([fallback.on_demand_selector] if fallback is not None else [])]
        if any(one.matches(node.labels) for node in (before, after) if node is not None for one in selectors):
            yield "", pool.metadata.name


def _of_pod(reader: Reader, before: Pod | None, after: Pod | None) -> Iterable[tuple[str, str]]:
    names = {pod.view.labels.get(LABEL_SPOT_POOL, "") for pod in (before, after) if pod is not None}
    return [("", name) for name in sorted(names) if name]


def _of_job(
    reader: Reader, before: CachedObject | None, after: CachedObject | None
) -> Iterable[tuple[str, str]]:
    """Return the keys of the pools that the job's roles name. The roles may be invalid."""
    names: set[str] = set()
    for job in (before, after):
        roles = (job.raw.get("spec") or {}).get("roles") if job is not None else None
        for role in roles if isinstance(roles, list) else ():
            name = role.get("spotPool") if isinstance(role, dict) else None
            if isinstance(name, str) and name:
                names.add(name)
    return [("", name) for name in sorted(names)]


def _relevant(node: Node) -> Hashable:
    """Return the part of a node that matters to its pool."""
    taints = tuple(str(sorted(taint.items())) for taint in node.taints)
    state = node.uid, node.boot_id, node.provider_id, node.ready, node.cordoned, node.shutting_down
    return state, tuple(sorted(node.labels.items())), taints, node.announcements


def _claiming(job: CachedObject) -> Hashable:
    return job.uid, job.generation, job.status.get("phase") in TERMINAL


CONTROLLER = Controller(
    KIND,
    summary="Decides which pods may use a pool's nodes, drains noticed nodes, and adds up the cost.",
    observe=observe,
    plan=plan,
    makes=(Makes(PODS, (EvictPod,), owned=False),),
    watches=(
        Watch(NODES, _selecting, _relevant, own=False),
        Watch(PODS, _of_pod, lambda pod: (pod.view.node, pod.view.deleting, pod.view.needs_node)),
        Watch(TRAINING_JOBS, _of_job, _claiming),
        # Another pool's selector can change which pool owns a node.
        every(KIND, SPOT_POOLS, lambda pool: pool.generation),
    ),
    progress=COST_FIELDS,
    pace=Pace(min_seconds=0.0, max_seconds=1.0),
)
