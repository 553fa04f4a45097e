"""Observes a ServingJob: reads the job, its pods and nodes, and the objects that its spec names, from caches
and hub.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from convoy_controllers.cached import CachedObject
from convoy_controllers.keys import Key
from convoy_controllers.placement.gang_state import live, written
from convoy_controllers.placement.placing import packs
from convoy_controllers.reader import Reader
from convoy_controllers.resources import CONTROLLER_REVISIONS, ENDPOINT_SLICES, SERVICES
from convoy_controllers.servingjob import endpoints, revision
from convoy_controllers.servingjob.groups import group_of
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_crds import checkpointstore, engine, trainingjob
from convoy_crds.servingjob import KIND, ServingJob
from convoy_crds.terms import ENGINE_ACTIVATOR, LABEL_ENDPOINT


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the job, its pods and nodes, and the objects that its spec names; None if the job does not
    exist or is invalid.
    """
    job = reader.get(KIND, key.name, key.namespace)
    if job is None:
        return None
    uid = job.metadata.uid
    pods = reader.pods(key.namespace, key.name)
    own = tuple(pod for pod in pods if pod.owner_uid == uid)
    source = job.spec.model.checkpoint if job.spec.model else None
    warnings = {pod.uid: reader.warning(pod.uid) for pod in own}
    services = reader.children(SERVICES, uid)
    stored = (revision.parse(one) for one in reader.children(CONTROLLER_REVISIONS, uid))
    revisions = tuple(one for one in stored if one is not None)
    needs_store = source is not None or any(one.spec.generation for one in revisions)
    engines = {name: reader.get(engine.KIND, name) for name in _engine_names(job)}
    return Observed(
        job=job,
        network=reader.network,
        engines={name: one for name, one in engines.items() if one is not None},
        known_engines=tuple(sorted(one.name for one in reader.live(engine.KIND))),
        revisions=revisions,
        store=reader.get(checkpointstore.KIND, source.store) if source else None,
        known_stores=_stores_for(reader, key.namespace) if needs_store else (),
        source=reader.get(trainingjob.KIND, source.job, key.namespace) if source and source.job else None,
        pods=pods,
        slots=reader.hub.slots(own),
        nodes=reader.hub.nodes(pods),
        silent_seconds=reader.hub.silent_seconds,
        front=_front(services),
        endpoints=endpoints.listed(
            [found for one in services for found in reader.children(ENDPOINT_SLICES, one.uid)]
        ),
        agent_nodes=len(reader.agent_nodes),
        states=reader.hub.states(uid) if job.spec.checkpoint.tiers.any else {},
        warnings={pod: warning for pod, warning in warnings.items() if warning is not None},
        create_errors=reader.refused(uid, job.metadata.generation or 0),
        traffic=reader.hub.traffic(own),
        loads=reader.hub.loads(own) if _scales(job) else {},
        memory=reader.memory(uid) or {},
        rooms=reader.rooms() if packs(job.spec.placement) and _may_create(job, own) else None,
        served=reader.served,
        gang_objects=tuple(
            one for resource in written(reader.served) for one in reader.children(resource, uid)
        ),
    )


def waits_for(reader: Reader, key: Key) -> Iterable[str]:
    """Return the nodes of the job's pods. Their agents must have had time to report before the job is
    reconciled.
    """
    return {pod.node for pod in reader.pods(key.namespace, key.name) if pod.node}


def _may_create(job: ServingJob, own: Sequence[PodView]) -> bool:
    """Return True if the job may have to create pods of replicas of several pods."""
    several = {role.name: role.group_size for role in job.spec.roles if role.group_size > 1}
    if not several:
        return False
    status = job.status
    changes = status.observed_generation != (job.metadata.generation or 0)
    if changes or status.current_revision != status.update_revision:
        return True
    there = Counter(group_of(one) for one in live(own))
    wanted = {(one.role, one.number) for one in status.internal.groups if one.role in several}
    lacks = any(there[key] < several[key[0]] for key in wanted)
    return lacks or any(sum(key[0] == name for key in wanted) < job.desired(name) for name in several)


def _scales(job: ServingJob) -> bool:
    return any(role.scaling is not None and role.scaling.decides for role in job.spec.roles)


def _engine_names(job: ServingJob) -> set[str]:
    named = {role.engine.name for role in job.spec.roles if role.engine is not None}
    return named | {ENGINE_ACTIVATOR} if job.spec.scales_to_zero else named


def _front(services: Iterable[CachedObject]) -> str:
    """Return the pods to which the job's Service leads; empty if there is none."""
    found = next((one.raw.get("spec") or {} for one in services), {})
    return str((found.get("selector") or {}).get(LABEL_ENDPOINT, ""))


def _stores_for(reader: Reader, namespace: str) -> tuple[str, ...]:
    """Return the names of the stores that jobs of a namespace may use."""
    allowed = (store for store in reader.all(checkpointstore.KIND) if store.spec.allows(namespace))
    return tuple(sorted(store.metadata.name for store in allowed))
