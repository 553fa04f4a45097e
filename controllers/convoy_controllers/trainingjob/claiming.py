"""Makes room for a job of higher priority: elastic jobs give up pods above `minReplicas`.

The job that needs room decides, and writes the pods that it claims into its status. The jobs that own these
pods read the claims and obey. A claim ends when its job starts, gives its pods back, or is suspended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.packing import PodClass, Room
from convoy_controllers.placement.requests import known_requests
from convoy_controllers.placement.rooms import candidates, cluster_topology
from convoy_controllers.placement.yielding import Claim, SparePod, fits, pods_to_leave
from convoy_controllers.reader import Reader
from convoy_controllers.trainingjob.observed import Observed, Yielded
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import slots
from convoy_crds.placement import ClaimedPod, Pack, PlacementStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import LABEL_ROLE
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import Phase

CLAIM_SECONDS = 300.0
"""Seconds for which a claim holds. After this time the pods of its job are created, so that the scheduler may
preempt others.
"""
CHECK_SECONDS = 30.0
"""Seconds after the check of its pods within which a job may claim pods."""
RECLAIM_SECONDS = 3600.0
"""Seconds after which a job whose claim brought no room may claim pods again."""
_LATE_SECONDS = 60.0
"""Seconds for which other jobs still obey a claim whose time is over. By then its job has dropped it."""
_CLAIMING = (None, Phase.PENDING, Phase.RESTARTING)
"""Phases of a job whose claims hold."""


_RUNNING = (Phase.RUNNING, Phase.STARTING, Phase.RESTARTING)
"""Phases of a job that can give up pods."""


def claims_of(job: CachedObject) -> Sequence[Mapping[str, Any]]:
    """Return the pods that a job claims, as its status stores them. A job that is deleted claims none."""
    if job.status.get("phase") not in _CLAIMING or job.raw["metadata"].get("deletionTimestamp"):
        return ()
    found: Sequence[Mapping[str, Any]] = (job.status.get("placement") or {}).get("claims") or ()
    return found


def standing(job: CachedObject, now: datetime) -> Sequence[Mapping[str, Any]]:
    """Return the pods that a job claims at `now`. An old claim does not count, whatever has kept its job from
    dropping it.
    """
    since = (job.status.get("placement") or {}).get("claimedAt")
    if not since or (now - datetime.fromisoformat(since)).total_seconds() > CLAIM_SECONDS + _LATE_SECONDS:
        return ()
    return claims_of(job)


def yielded(reader: Reader, job: TrainingJob, own: int) -> tuple[Yielded, ...]:
    """Return the pods of `job` that other jobs claim and that it must give up. `own`: priority of `job`.

    Claims that would leave a role with fewer pods than `minReplicas` are ignored, as are those of jobs
    without a higher priority.
    """
    if not _elastic(job):
        return ()
    spare = {role.name: role.replicas - role.least for role in job.spec.roles if not role.independent}
    found: dict[tuple[str, int], Yielded] = {}

    def give(role: str, replica: int, claimant: str, priority: int) -> None:
        if spare.get(role, 0) > 0 and (role, replica) not in found:
            spare[role] -= 1
            found[role, replica] = Yielded(role, replica, claimant, priority)

    others: dict[str, int] = {}
    for other in reader.live(KIND):
        priority = int((other.status.get("placement") or {}).get("priority") or 0)
        claims = standing(other, reader.now()) if priority > own else ()
        if claims:
            others[f"{other.namespace}/{other.name}"] = priority
        for claim in claims:
            if (claim["namespace"], claim["job"]) == (job.metadata.namespace, job.metadata.name):
                give(claim["role"], int(claim["replica"]), f"{other.namespace}/{other.name}", priority)
    if others:
        # Pods without a node would take the room that the other jobs give up.
        name, priority = max(others.items(), key=lambda one: (one[1], one[0]))
        for role, replica in _unplaced(reader, job):
            give(role, replica, name, priority)
    return tuple(found.values())


def _unplaced(reader: Reader, job: TrainingJob) -> list[tuple[str, int]]:
    """Return role and number of the replicas that have no pod with a node, the highest numbers first."""
    placed = {pod.name for pod in _placed_pods(reader, job)}
    layout = [slot for slot in slots(job) if slot.pod not in placed]
    return [(slot.role, slot.replica) for slot in sorted(layout, key=lambda slot: -slot.replica)]


def _placed_pods(reader: Reader, job: TrainingJob) -> list[PodView]:
    """Return the job's own pods that have a node and have not ended."""
    metadata = job.metadata
    return [
        pod
        for pod in reader.pods(metadata.namespace or "", metadata.name)
        if pod.owner_uid == metadata.uid and pod.node and not ended(pod)
    ]


def spare_pods(reader: Reader, job: TrainingJob, priority: int) -> tuple[SparePod, ...]:
    """Return the pods of elastic jobs of lower priority that no job has claimed, and those that `job` itself
    has claimed.
    """
    own = f"{job.metadata.namespace}/{job.metadata.name}"
    taken = {
        (claim["namespace"], claim["job"], claim["role"], int(claim["replica"]))
        for other in reader.live(KIND)
        if f"{other.namespace}/{other.name}" != own
        for claim in standing(other, reader.now())
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


@dataclass(frozen=True, slots=True)
class Held:
    """The reason why a job's pods are not created yet."""

    why: Violation
    check: bool = False
    """True if the API server must first check a pod, as it would for a create. Nobody gives up a pod for pods
    that a quota or a policy refuses.
    """


def hold(
    observed: Observed, draft: Draft, create: Sequence[Mapping[str, Any]], avoid: Collection[str]
) -> Held | None:
    """Claim pods of other jobs if the pods in `create` find no room. `avoid`: nodes on which no pod should be
    created. Return the reason why they are not created yet; None if they may be.
    """
    if draft.status.formed or observed.create_errors:
        release(draft)
        return None
    placed = draft.status.placement or PlacementStatus()
    age = _age(placed, draft.now)
    if age is not None and age >= RECLAIM_SECONDS:
        release(draft)
        age = None
    if age is not None and age >= CLAIM_SECONDS:
        placed.claims = []
    if not create or (age is None and not observed.spare):
        return None
    if observed.rooms is None:
        return Held(Violation(Reasons.READING_ROOM, Reasons.READING_ROOM.format(count=len(create))))
    claim, rooms = _claim(observed, create, frozenset(avoid))
    if not claim.classes or fits(claim, rooms):
        return None
    leaving = list(placed.claims)
    if not leaving and (age is None or age < CHECK_SECONDS):
        leaving = [_claimed(one) for one in pods_to_leave(claim, observed.spare, rooms)]
        if leaving:
            draft.status.placement = placed
            placed.claimed_at, placed.priority = draft.now, observed.priority
            placed.claims = leaving if age is not None else []
    return Held(_making_room(leaving), check=not placed.claims) if leaving else None


def _age(placed: PlacementStatus, now: datetime) -> float | None:
    """Return the seconds since the job asked for pods of others; None if it has not."""
    return (now - placed.claimed_at).total_seconds() if placed.claimed_at is not None else None


def _making_room(claims: Sequence[ClaimedPod]) -> Violation:
    counts = Counter(f"{one.namespace}/{one.job}" for one in claims)
    jobs = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    reason = Reasons.MAKING_ROOM
    return Violation(reason, reason.format(count=len(claims), jobs=jobs))


def release(draft: Draft) -> None:
    """End the claims of a job."""
    placed = draft.status.placement
    if placed is not None:
        placed.claims, placed.claimed_at, placed.priority = [], None, None


def _claim(
    observed: Observed, create: Sequence[Mapping[str, Any]], avoid: frozenset[str]
) -> tuple[Claim, list[Room]]:
    """Return the pods without which the gang cannot run, and the nodes for them."""
    placement = observed.job.spec.placement
    found = cluster_topology(placement.topology_keys, observed.rooms or {})
    specs = {str(body["metadata"]["labels"][LABEL_ROLE]): body["spec"] for body in create}
    counts = Counter(str(body["metadata"]["labels"][LABEL_ROLE]) for body in create)
    there = Counter(
        pod.labels.get(LABEL_ROLE, "")
        for pod in observed.pods
        if pod.owner_uid == observed.job.metadata.uid and not pod.deleting and not ended(pod)
    )
    least = {role.name: role.least for role in observed.job.spec.roles}
    wanted = {
        name: min(count, max(0, least.get(name, count) - there[name])) for name, count in counts.items()
    }
    classes = [
        PodClass(name, known_requests(spec) or {}, wanted[name], wanted[name])
        for name, spec in specs.items()
        if wanted[name]
    ]
    required = placement.pack is Pack.REQUIRED
    rooms = candidates(observed.rooms or {}, found, specs, avoid, empty=False)
    return Claim(classes, observed.priority, len(placement.topology_keys), required), rooms


def _spare_of(reader: Reader, job: TrainingJob) -> list[SparePod]:
    """Return the pods of a job above its `minReplicas`, the highest numbers of each role."""
    metadata = job.metadata
    placed = _placed_pods(reader, job)
    created = metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else 0.0
    found = []
    for role in job.spec.roles:
        own = sorted((one for one in placed if one.labels.get(LABEL_ROLE) == role.name), key=_replica)
        spare = own[role.least :] if not role.independent else []
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
