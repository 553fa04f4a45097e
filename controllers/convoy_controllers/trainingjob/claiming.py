"""Makes room for a job of higher priority: elastic jobs give up pods above `minReplicas`.

The job that needs room decides, and writes the pods that it claims into its status. The jobs that own these
pods read the claims and obey. A claim ends when its job starts, gives its pods back, or is suspended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.packing import PodClass
from convoy_controllers.placement.requests import pod_requests
from convoy_controllers.placement.rooms import candidates, cluster_topology
from convoy_controllers.placement.yielding import Claim, SparePod, fits, pods_to_leave
from convoy_controllers.reader import Reader
from convoy_controllers.trainingjob.observed import Observed, Yielded
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.violation import Violation
from convoy_crds.placement import MAX_CLAIMS, ClaimedPod, Pack, PlacementStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import LABEL_ROLE
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import Phase

CLAIM_SECONDS = 300.0
"""Seconds for which a job waits for the pods that it claims. After this time its own pods are created, so
that the scheduler may preempt others.
"""
_CLAIMING = (None, Phase.PENDING, Phase.RESTARTING)
"""Phases of a job whose claims hold."""


_RUNNING = (Phase.RUNNING, Phase.STARTING, Phase.RESTARTING)
"""Phases of a job that can give up pods."""


def claims_of(job: CachedObject) -> Sequence[Mapping[str, Any]]:
    """Return the pods that a job claims, as its status stores them."""
    if job.status.get("phase") not in _CLAIMING:
        return ()
    found: Sequence[Mapping[str, Any]] = (job.status.get("placement") or {}).get("claims") or ()
    return found


def yielded(reader: Reader, job: TrainingJob, own: int) -> tuple[Yielded, ...]:
    """Return the pods of `job` that other jobs claim and that it must give up. `own`: priority of `job`.

    Claims that would leave a role with fewer pods than `minReplicas` are ignored, as are those of jobs
    without a higher priority.
    """
    if not _elastic(job):
        return ()
    spare = {role.name: role.replicas - (role.min_replicas or role.replicas) for role in job.spec.roles}
    found: list[Yielded] = []
    for other in reader.live(KIND):
        priority = int((other.status.get("placement") or {}).get("priority") or 0)
        for claim in claims_of(other) if priority > own else ():
            if (claim["namespace"], claim["job"]) != (job.metadata.namespace, job.metadata.name):
                continue
            if spare.get(claim["role"], 0) > 0:
                spare[claim["role"]] -= 1
                name = f"{other.namespace}/{other.name}"
                found.append(Yielded(claim["role"], int(claim["replica"]), name, priority))
    return tuple(found)


def spare_pods(reader: Reader, job: TrainingJob, priority: int) -> tuple[SparePod, ...]:
    """Return the pods of elastic jobs of lower priority that no job has claimed, and those that `job` itself
    has claimed.
    """
    own = f"{job.metadata.namespace}/{job.metadata.name}"
    taken = {
        (claim["namespace"], claim["job"], claim["role"], int(claim["replica"]))
        for other in reader.live(KIND)
        if f"{other.namespace}/{other.name}" != own
        for claim in claims_of(other)
    }
    found: list[SparePod] = []
    for stored in reader.live(KIND):
        if stored.status.get("phase") not in _RUNNING or f"{stored.namespace}/{stored.name}" == own:
            continue
        other = reader.get(KIND, stored.name, stored.namespace)
        if other is None or not _elastic(other):
            continue
        found += [
            one
            for one in _spare_of(reader, other)
            if one.priority < priority and (stored.namespace, stored.name, one.role, one.replica) not in taken
        ]
    return tuple(found)


def hold(observed: Observed, draft: Draft, create: Sequence[Mapping[str, Any]]) -> Violation | None:
    """Claim pods of other jobs if the pods in `create` find no room. Return the reason why they are not
    created yet; None if they may be.
    """
    status = draft.status
    placed = status.placement or PlacementStatus()
    if status.formed:
        release(draft)
        return None
    if not create or (placed.claimed_at is None and not observed.spare):
        return None
    if observed.rooms is None:
        return Violation(Reasons.READING_ROOM, Reasons.READING_ROOM.format(count=len(create)))
    claim, rooms = _claim(observed, create)
    if fits(claim, rooms):
        return None
    if placed.claimed_at is None:
        leaving = pods_to_leave(claim, observed.spare, rooms)
        if not leaving or len(leaving) > MAX_CLAIMS:
            return None
        placed.claims = [_claimed(one) for one in leaving]
        placed.claimed_at, placed.priority = draft.now, observed.priority
        status.placement = placed
    elif draft.now >= placed.claimed_at + timedelta(seconds=CLAIM_SECONDS):
        return None
    counts = Counter(f"{one.namespace}/{one.job}" for one in placed.claims)
    jobs = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    reason = Reasons.MAKING_ROOM
    return Violation(reason, reason.format(count=len(placed.claims), jobs=jobs))


def release(draft: Draft) -> None:
    """End the claims of a job."""
    placed = draft.status.placement
    if placed is not None:
        placed.claims, placed.claimed_at, placed.priority = [], None, None


def _claim(observed: Observed, create: Sequence[Mapping[str, Any]]) -> tuple[Claim, list[Any]]:
    placement = observed.job.spec.placement
    found = cluster_topology(placement.topology_keys, observed.rooms or {})
    specs = {str(body["metadata"]["labels"][LABEL_ROLE]): body["spec"] for body in create}
    counts = Counter(str(body["metadata"]["labels"][LABEL_ROLE]) for body in create)
    least = {role.name: role.min_replicas or role.replicas for role in observed.job.spec.roles}
    wanted = {name: min(count, least.get(name, count)) for name, count in counts.items()}
    classes = [PodClass(name, pod_requests(spec), wanted[name], wanted[name]) for name, spec in specs.items()]
    required = placement.pack is Pack.REQUIRED
    rooms = candidates(observed.rooms or {}, found, specs, frozenset(), empty=False)
    return Claim(classes, observed.priority, len(placement.topology_keys), required), rooms


def _spare_of(reader: Reader, job: TrainingJob) -> list[SparePod]:
    """Return the pods of a job above its `minReplicas`, the highest numbers of each role."""
    metadata = job.metadata
    live = [
        one
        for one in reader.pods(metadata.namespace or "", metadata.name)
        if one.owner_uid == metadata.uid and one.node and not ended(one)
    ]
    created = metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else 0.0
    found = []
    for role in job.spec.roles:
        own = sorted((one for one in live if one.labels.get(LABEL_ROLE) == role.name), key=_replica)
        spare = own[(role.min_replicas or role.replicas) :] if not role.independent else []
        found += [
            SparePod(
                f"{metadata.namespace}/{metadata.name}",
                role.name,
                _replica(one),
                one.node or "",
                one.requests,
                one.priority,
                created,
            )
            for one in spare
        ]
    return found


def _replica(pod: PodView) -> int:
    """Return the number of a pod within its role: the end of its name."""
    return int(pod.name.rsplit("-", 1)[-1])


def _claimed(pod: SparePod) -> ClaimedPod:
    namespace, _, job = pod.job.partition("/")
    return ClaimedPod(job=job, namespace=namespace, role=pod.role, replica=pod.replica)


def _elastic(job: TrainingJob) -> bool:
    """Return True if the job may give up pods."""
    return job.spec.placement.shrink_first and any(
        not role.independent and role.min_replicas is not None and role.min_replicas < role.replicas
        for role in job.spec.roles
    )
