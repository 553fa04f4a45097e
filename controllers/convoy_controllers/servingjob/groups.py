"""The replicas of a ServingJob, each a group of pods. Groups are rebuilt from the live pods in each plan.

A group exists as long as one of its pods is not being deleted, or while Convoy restarts it. A healthy group
whose pods are all being deleted is on its way out: it no longer counts, and a new group gets another number.
Pods without a record, for example after the status was restored from a backup, are adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import Revision, RoleRevision
from convoy_controllers.views import PodView, SlotView
from convoy_controllers.workers.membership import membership
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS
from convoy_crds.servingjob_status import GroupRecord
from convoy_crds.terms import LABEL_GROUP, LABEL_INDEX, LABEL_REVISION, LABEL_ROLE

PROBED_SECONDS = 3.0
"""Seconds after the start of an engine's rank within which the kubelet has noticed that the rank is not
ready: two probes in a row must fail.
"""
SKEW_SECONDS = 2.0
"""Maximum difference between the clocks of a node and of the operator."""
MAX_PROBED_SECONDS = 120.0
"""Maximum of these seconds for a template's own readiness probe."""
Key = tuple[str, int]
"""Role and number of a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """One replica: its record, its pods by slot, and its state."""

    record: GroupRecord
    size: int
    """Number of pods of the group; 0 if its revision is not stored any more."""
    pods: Mapping[int, PodView]
    ready: bool = False
    """True if the group receives requests."""
    ready_since: float = 0.0
    """Unix seconds since which all pods of the group have been ready; 0 if one is not."""
    changed: float = 0.0
    """Unix seconds of the last change of a pod's readiness, or of the newest pod's creation."""
    listed: float | None = 0.0
    """Unix seconds since which the Service lists the group; 0 if the Service does not lead to it. None if the
    Service should list it but does not.
    """
    noticed: float = 0.0
    """Unix seconds until which the kubelet may still report the ranks before a restart in place as ready; 0
    if it has noticed the restart.
    """

    @property
    def key(self) -> Key:
        """Return role and number."""
        return self.record.role, self.record.number

    @property
    def name(self) -> str:
        """Return the name of the group for messages, such as `worker-3`."""
        return f"{self.record.role}-{self.record.number}"

    def settled(self, now: datetime) -> bool:
        """Return True if every proxy knows that the group is ready."""
        if not self.ready or self.listed is None:
            return False
        return now.timestamp() >= max(self.ready_since, self.listed) + ENDPOINT_LAG_SECONDS


def pod_name(job: str, record: GroupRecord, slot: int) -> str:
    """Return the name of a group's pod."""
    return f"{job}-{record.role}-{record.number}-{slot}"


def slots(job: str, record: GroupRecord, size: int) -> tuple[Slot, ...]:
    """Return the slots of a group. Each pod runs one rank."""
    return tuple(
        Slot(index, record.role, record.number, pod_name(job, record, index), index, 1, index)
        for index in range(size)
    )


def group_of(pod: PodView) -> Key | None:
    """Return the group that a pod's labels name; None if they name none."""
    number = pod.labels.get(LABEL_GROUP, "")
    role = pod.labels.get(LABEL_ROLE, "")
    return (role, int(number)) if role and number.isdecimal() else None


def slot_of(pod: PodView) -> int:
    """Return the slot that a pod's labels name; -1 if they name none."""
    index = pod.labels.get(LABEL_INDEX, "")
    return int(index) if index.isdecimal() else -1


def groups(
    observed: Observed, revisions: Mapping[str, Revision], lost: Mapping[str, str], now: float
) -> tuple[Group, ...]:
    """Return the groups that exist, in the order of roles and numbers. `revisions` are all revisions by
    name, `lost` the lost nodes, and `now` is in Unix seconds.
    """
    records = {(one.role, one.number): one for one in observed.job.status.internal.groups}
    pods: dict[Key, dict[int, PodView]] = {}
    for pod in observed.own_pods:
        if (key := group_of(pod)) is not None and _of_revision(pod, records.get(key)):
            pods.setdefault(key, {})[slot_of(pod)] = pod
    found = []
    for key in sorted({*records, *pods}):
        own = pods.get(key, {})
        record = records.get(key) or _adopted(observed, key, own)
        if not _exists(record, own, known=key in records):
            continue
        revision = revisions.get(record.revision)
        role = revision.spec.role(record.role) if revision else None
        group = _group(observed, record, role, own, lost)
        # A node whose clock is far ahead reports a start in the future. Its group is not held unready for it.
        unnoticed = now < group.noticed <= now + PROBED_SECONDS + SKEW_SECONDS
        found.append(replace(group, ready=False, ready_since=0.0) if unnoticed else group)
    return tuple(found)


def strays(observed: Observed, found: Iterable[Group]) -> tuple[PodView, ...]:
    """Return the job's pods that belong to no group and are not being deleted, such as a pod of another
    revision than its group.
    """
    placed = {
        pod.uid for one in found for slot, pod in one.pods.items() if 0 <= slot < one.size or not one.size
    }
    return tuple(pod for pod in observed.own_pods if pod.uid not in placed and not pod.deleting)


def _of_revision(pod: PodView, record: GroupRecord | None) -> bool:
    return record is None or pod.labels.get(LABEL_REVISION) == record.revision


def used_numbers(observed: Observed, role: str) -> set[int]:
    """Return the numbers of a role whose pod names are in use, by any owner."""
    keys = (group_of(pod) for pod in observed.pods)
    return {key[1] for key in keys if key is not None and key[0] == role}


def _adopted(observed: Observed, key: Key, pods: Mapping[int, PodView]) -> GroupRecord:
    """Return a record for pods that have none. If all of them run one incarnation, they go on with it."""
    revision = min((pod.labels.get(LABEL_REVISION, "") for pod in pods.values()), default="")
    record = GroupRecord(role=key[0], number=key[1], revision=revision)
    views = [observed.slots.get(pod.uid) for _, pod in sorted(pods.items())]
    incarnations = {view.incarnation if view else 0 for view in views}
    if len(incarnations) != 1 or 0 in incarnations or any(pod.deleting for pod in pods.values()):
        return record
    uids = membership(pod.uid for _, pod in sorted(pods.items()))
    return record.model_copy(update={"incarnation": min(incarnations), "membership": uids})


def _exists(record: GroupRecord, pods: Mapping[int, PodView], *, known: bool) -> bool:
    """Return True if a group still exists. A restart may delete all pods of a group, but keeps its record
    with an open incarnation.
    """
    if any(not pod.deleting for pod in pods.values()):
        return True
    return known and (not pods or not record.membership)


def _group(
    observed: Observed,
    record: GroupRecord,
    role: RoleRevision | None,
    pods: Mapping[int, PodView],
    lost: Mapping[str, str],
) -> Group:
    size = role.group_size if role else 0
    # Without its revision, a group counts as whole: it serves until it is replaced.
    whole = all(slot in pods for slot in range(size)) if size else bool(pods)
    formed = whole and bool(record.membership)
    ready = formed and all(_ready(observed, record, pod, lost) for pod in pods.values())
    times = [max(pod.ready_changed, pod.created) for pod in pods.values()]
    changed = max(times, default=0.0)
    restarted = max((_restarted(observed, pod) for pod in pods.values()), default=0.0)
    since = max(changed, restarted + _probe_seconds(role) if restarted else 0.0) if ready else 0.0
    noticed = restarted + PROBED_SECONDS if restarted else 0.0
    return Group(record, size, pods, ready, ready_since=since, changed=changed, noticed=noticed)


def _restarted(observed: Observed, pod: PodView) -> float:
    """Return the Unix seconds at which ranks of a pod started after the pod had become ready; 0 if they
    started earlier.
    """
    view = observed.slots.get(pod.uid)
    started = max((rank.started for rank in view.ranks), default=0.0) if view else 0.0
    return started if int(started) > pod.ready_changed else 0.0


def _probe_seconds(role: RoleRevision | None) -> float:
    """Return the seconds after which the kubelet has noticed that a rank of the role is not ready."""
    containers = role.template.spec.containers if role and role.template and not role.engine else []
    probe = containers[0].readiness_probe if containers else None
    if probe is None:
        return PROBED_SECONDS
    period, failures = probe.get("periodSeconds", 10), probe.get("failureThreshold", 3)
    known = isinstance(period, int) and isinstance(failures, int)
    return min(period * failures + PROBED_SECONDS, MAX_PROBED_SECONDS) if known else MAX_PROBED_SECONDS


def _ready(observed: Observed, record: GroupRecord, pod: PodView, lost: Mapping[str, str]) -> bool:
    """Return True if a pod is ready and nothing shows that it will stop to be so. The kubelet learns of the
    end or the restart of a rank later than the agent.
    """
    if not pod.ready or pod.deleting or ended(pod) or pod.node in lost:
        return False
    view = observed.slots.get(pod.uid)
    return not rank_ended(view, record.incarnation) and not _starting(view, record.incarnation)


def _starting(view: SlotView | None, incarnation: int) -> bool:
    """Return True if the ranks of the incarnation have not started yet, according to the pod's agent."""
    if view is None or view.incarnation > incarnation:
        return False
    return view.incarnation < incarnation or any(rank.state == "STARTING" for rank in view.ranks)


def rank_ended(view: SlotView | None, incarnation: int) -> bool:
    """Return True if a rank of the incarnation has ended, according to its agent."""
    if view is None or view.incarnation != incarnation:
        return False
    return any(rank.state == "EXITED" for rank in view.ranks)


def by_role(found: Iterable[Group]) -> dict[str, list[Group]]:
    """Return the groups of each role."""
    out: dict[str, list[Group]] = {}
    for one in found:
        out.setdefault(one.record.role, []).append(one)
    return out
