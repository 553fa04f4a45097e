"""Observes a TrainingJob: reads the job, its pods and nodes, and the objects that its spec names, from
caches and hub.
"""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.keys import Key
from convoy_controllers.placement.gang_state import written
from convoy_controllers.placement.kueue import objects
from convoy_controllers.placement.placing import packs
from convoy_controllers.reader import Reader
from convoy_controllers.resources import PRIORITY_CLASSES
from convoy_controllers.spotpool.members import pools_of
from convoy_controllers.trainingjob import claiming, similar, tiers
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.queueing import queue_name
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_crds import checkpointstore, engine, spotpool
from convoy_crds.placement import Advise
from convoy_crds.trainingjob import KIND, TrainingJob


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the job, its pods and nodes, and the objects that its spec names; None if the job does not
    exist or is invalid.
    """
    job = reader.get(KIND, key.name, key.namespace)
    if job is None:
        return None
    pods = reader.pods(key.namespace, key.name)
    own = tuple(pod for pod in pods if pod.owner_uid == job.metadata.uid)
    stored, other = job.spec.checkpoint.tiers.store, job.spec.checkpoint.resume_from
    traced = job.spec.trace_store
    warnings = {pod.uid: reader.warning(pod.uid) for pod in own}
    uid = job.metadata.uid or ""
    lacks, priority = _lacks_pods(job, own), _priority(reader, job, own)
    may_claim = lacks and not job.status.formed and _may_preempt(reader, job)
    spare = claiming.spare_pods(reader, job, priority) if may_claim else ()
    claimed = job.status.placement is not None and bool(job.status.placement.claims)
    advised = job.spec.placement.advise is Advise.SIMULATE
    return Observed(
        job=job,
        defaults=reader.checkpoint_defaults,
        network=reader.network,
        engine=reader.get(engine.KIND, job.spec.engine.name) if job.spec.engine else None,
        known_engines=tuple(sorted(one.name for one in reader.live(engine.KIND))),
        store=reader.get(checkpointstore.KIND, stored) if stored else None,
        trace_store=reader.get(checkpointstore.KIND, traced) if traced else None,
        known_stores=_stores_for(reader, key.namespace) if stored or traced else (),
        pools={name: pool for name in pools_of(job) if (pool := reader.get(spotpool.KIND, name)) is not None},
        known_pools=_pools_for(reader, key.namespace) if any(pools_of(job)) else (),
        source=reader.get(KIND, other.job, key.namespace) if other and other.job else None,
        pods=pods,
        slots=reader.hub.slots(own),
        nodes=reader.hub.nodes(pods),
        silent_seconds=reader.hub.silent_seconds,
        rooms=reader.rooms() if lacks and (spare or claimed or packs(job.spec.placement)) else None,
        priority=priority,
        spare=spare,
        similar=similar.names(reader, job),
        yielded=claiming.yielded(reader, job, priority),
        served=reader.served,
        queue=objects.read(
            reader, key.namespace, uid, queue_name(job), job.metadata.labels, _class_name(job)
        ),
        gang_objects=tuple(
            one for resource in written(reader.served) for one in reader.children(resource, uid)
        ),
        forecasts=reader.forecasts if advised else {},
        compared=reader.memory(uid) or () if advised else (),
        pace=reader.hub.paces().get(f"{key.namespace}/{key.name}") if advised else None,
        agent_nodes=len(reader.agent_nodes),
        holders=reader.hub.holders(uid),
        guard=reader.hub.guard(uid),
        warnings={pod: warning for pod, warning in warnings.items() if warning is not None},
        create_errors=reader.refused(uid, job.metadata.generation or 0),
    )


def _priority(reader: Reader, job: TrainingJob, own: tuple[PodView, ...]) -> int:
    """Return the priority of the job's pods: that of a pod, or else that of the template's PriorityClass.
    Without a class, it is that of the cluster's default class.
    """
    if own:
        return max(pod.priority for pod in own)
    named = {
        role.template.spec.to_dict().get("priorityClassName") for role in job.spec.roles if role.template
    } - {None, ""}
    for one in reader.objects(PRIORITY_CLASSES):
        if one.name in named or (not named and one.raw.get("globalDefault")):
            return int(one.raw.get("value") or 0)
    return 0


def _may_preempt(reader: Reader, job: TrainingJob) -> bool:
    """Return True if the job's pods may preempt others: neither template nor PriorityClass says `Never`."""
    specs = [role.template.spec.to_dict() for role in job.spec.roles if role.template]
    policies = {spec.get("preemptionPolicy") for spec in specs}
    named = {spec.get("priorityClassName") for spec in specs} - {None, ""}
    policies |= {
        one.raw.get("preemptionPolicy")
        for one in reader.objects(PRIORITY_CLASSES)
        if one.name in named or (not named and one.raw.get("globalDefault"))
    }
    return "Never" not in policies


def _class_name(job: TrainingJob) -> str:
    """Return the PriorityClass of the first role; empty without one. A gang needs the same in all roles."""
    template = job.spec.roles[0].template
    return str((template.spec.to_dict() if template else {}).get("priorityClassName") or "")


def _lacks_pods(job: TrainingJob, own: tuple[PodView, ...]) -> bool:
    """Return True if the job may have to create a pod."""
    live = sum(not ended(pod) and not pod.deleting for pod in own)
    return live < sum(role.replicas for role in job.spec.roles)


def waits_for(reader: Reader, key: Key) -> Iterable[str]:
    """Return the nodes whose agents must have had time to report before the job is reconciled.

    These are the nodes of the job's pods. If the job keeps checkpoints in memory, all nodes with an agent
    are added, because each of them may hold some.
    """
    found = {pod.node for pod in reader.pods(key.namespace, key.name) if pod.node}
    job = reader.get(KIND, key.name, key.namespace)
    saved = job is not None and tiers.nominal(job, reader.checkpoint_defaults).any
    return found | reader.agent_nodes if saved else found


def _pools_for(reader: Reader, namespace: str) -> tuple[str, ...]:
    """Return the names of the SpotPools that jobs of a namespace may use."""
    allowed = (pool for pool in reader.all(spotpool.KIND) if pool.spec.allows(namespace))
    return tuple(sorted(pool.metadata.name for pool in allowed))


def _stores_for(reader: Reader, namespace: str) -> tuple[str, ...]:
    """Return the names of the stores that jobs of a namespace may use."""
    allowed = (store for store in reader.all(checkpointstore.KIND) if store.spec.allows(namespace))
    return tuple(sorted(store.metadata.name for store in allowed))
