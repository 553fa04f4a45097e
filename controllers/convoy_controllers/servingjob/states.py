"""Decides which nodes keep the states of replicas, and reports which states are saved. Pure.

The nodes with replicas of one role and revision form a ring, ordered by name. Copies of a replica's state
go to the next nodes of the ring, if possible to those of another failure domain. So each node keeps about
as many copies as it sends, and a node that joins or leaves changes the hosts of few others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from convoy_controllers.checkpoint.replica_state import may_read, state_uid
from convoy_controllers.commands import ReplicaState
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import SlotView
from convoy_crds.meta import in_bytes
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.servingjob_status import GroupRecord, SavedStates
from convoy_crds.terms import ROLE_ACTIVATOR

MAX_NEAR = 64
"""Maximum number of following nodes among which a host in another failure domain is searched."""
MAX_HOLDERS = 16
"""Maximum number of nodes that a starting replica asks for states, besides the hosts of its own."""
STEADY_SECONDS = 60.0
"""Minimum seconds by which the time of the oldest state in the status advances."""
MAX_LIMIT = 2**53
"""Maximum limit that a message carries. No node has more memory."""
LOCAL, PEER = "local", "peer"
Family = tuple[str, str]
"""Role and revision."""


@dataclass(frozen=True, slots=True)
class Rings:
    """The nodes with replicas of each role and revision, in the order of their names."""

    nodes: Mapping[Family, Sequence[str]]
    places: Mapping[Family, Mapping[str, int]]
    """Position of each node in its ring."""


def rings(observed: Observed, groups: Iterable[Group], lost: Collection[str]) -> Rings:
    """Return the rings of a job whose replicas may save their state. `lost`: names of lost nodes."""
    found: dict[Family, set[str]] = {}
    for group in groups if observed.job.spec.checkpoint.tiers.any else ():
        first = group.pods.get(0)
        if first is not None and first.node and first.node not in lost and group.record.membership:
            found.setdefault((group.record.role, group.record.revision), set()).add(first.node)
    nodes = {family: sorted(names) for family, names in found.items()}
    places = {family: {name: at for at, name in enumerate(names)} for family, names in nodes.items()}
    return Rings(nodes, places)


def settings(observed: Observed, record: GroupRecord, node: str, found: Rings) -> ReplicaState | None:
    """Return where a replica on `node` saves its state; None if it may save none."""
    tiers = observed.job.spec.checkpoint.tiers
    if tiers.local is None or record.role == ROLE_ACTIVATOR:
        return None
    uid = state_uid(observed.job.metadata.uid, record.role, record.revision, record.number).text
    return ReplicaState(
        uid=uid,
        limit=min(in_bytes(tiers.local.memory), MAX_LIMIT) if tiers.local.memory else 0,
        hosts=_hosts(observed, (record.role, record.revision), node, found),
    )


def holders(observed: Observed, uid: str) -> tuple[str, ...]:
    """Return the nodes with states that the replica of the state `uid` may read: first those with its own."""
    found: dict[str, None] = {}
    for other in sorted(observed.states, key=lambda other: other != uid):
        if may_read(uid, other):
            found |= dict.fromkeys(observed.states[other])
    return tuple(found)[:MAX_HOLDERS]


def outdated(view: SlotView, wanted: ReplicaState | None) -> bool:
    """Return True if the agent of slot 0 has other settings than `wanted`."""
    known = view.replica_state
    if known is None or wanted is None:
        return (known is None) != (wanted is None)
    return (known.hosts, known.limit) != (wanted.hosts, wanted.limit)


def _hosts(observed: Observed, family: Family, node: str, found: Rings) -> tuple[str, ...]:
    peer, names = observed.job.spec.checkpoint.tiers.peer, found.nodes.get(family, ())
    at = found.places.get(family, {}).get(node)
    if peer is None or at is None:
        return ()
    count = min(peer.copies, len(names) - 1)
    near = [names[(at + step) % len(names)] for step in range(1, min(len(names), MAX_NEAR + 1))]
    key = peer.domain_key()
    own = _domain(observed, node, key)
    far = [name for name in near if own and _domain(observed, name, key) not in ("", own)]
    return tuple([*far, *(name for name in near if name not in far)][:count])


def _domain(observed: Observed, node: str, key: str) -> str:
    view = observed.nodes.get(node)
    return view.labels.get(key, "") if view else ""


class Finding(NamedTuple):
    """One finding about the states of replicas. `holds` is True if they are saved as the spec asks."""

    holds: bool
    reason: Reason
    message: str


def finding(observed: Observed, groups: Sequence[Group]) -> Finding | None:
    """Return the gravest finding; None if replicas may save no state, or while none has started."""
    started = [one for one in groups if _view(observed, one) is not None]
    if not observed.job.spec.checkpoint.tiers.any or not started:
        return None
    return next(_findings(observed, started))


def saved(observed: Observed, groups: Iterable[Group], before: SavedStates | None) -> SavedStates | None:
    """Return the saved states for the status; None if replicas may save none. `before`: the stored ones."""
    if not observed.job.spec.checkpoint.tiers.any:
        return None
    views = [view for one in groups if (view := _view(observed, one)) is not None]
    times = [view.committed[LOCAL].step / 1000 for view in views if LOCAL in view.committed]
    oldest = datetime.fromtimestamp(int(min(times)), UTC) if times else None
    stored = before.oldest if before else None
    if oldest and stored and 0 <= (oldest - stored).total_seconds() < STEADY_SECONDS:
        oldest = stored
    return SavedStates(replicas=len(times), copied=sum(map(_copied, views)), oldest=oldest)


def _findings(observed: Observed, groups: Sequence[Group]) -> Iterator[Finding]:
    for kind, reason in (("NO_MEMORY", Reasons.NO_STATE_MEMORY), ("NOT_COPIED", Reasons.STATE_NOT_COPIED)):
        for group in groups:
            view = _view(observed, group)
            why = dict(view.troubles).get(kind) if view else None
            if view and why:
                yield Finding(False, reason, reason.format(replica=group.name, node=view.node, why=why))
    views = [view for one in groups if (view := _view(observed, one)) is not None]
    count = sum(LOCAL in view.committed for view in views)
    if not count:
        yield Finding(False, Reasons.NO_STATE_SAVED, Reasons.NO_STATE_SAVED.message)
    alone = next((one for one in views if not (one.replica_state and one.replica_state.hosts)), None)
    whole = len(groups) >= sum(observed.desired(role.name) for role in observed.job.spec.roles)
    if observed.job.spec.checkpoint.tiers.peer is not None and alone is not None and whole:
        reason = Reasons.STATES_ON_ONE_NODE
        yield Finding(False, reason, reason.format(node=alone.node))
    copied = sum(map(_copied, views))
    facts = {"saved": count, "replicas": len(groups), "copied": copied}
    yield Finding(True, Reasons.STATES_SAVED, Reasons.STATES_SAVED.format(**facts))


def _view(observed: Observed, group: Group) -> SlotView | None:
    """Return the report about slot 0 of a replica that may save its state, and whose present incarnation has
    started; None for any other replica.
    """
    first = group.pods.get(0)
    view = observed.slots.get(first.uid) if first else None
    if view is None or view.replica_state is None or not view.incarnation:
        return None
    return view if view.incarnation == group.record.incarnation else None


def _copied(view: SlotView) -> bool:
    """Return True if the newest state of a replica has all its copies."""
    newest, copied = view.committed.get(LOCAL), view.committed.get(PEER)
    return newest is not None and copied is not None and copied.step >= newest.step
