"""Replicas that talk to each other: decides which addresses each of them gets.

Only replicas of an Engine with `replicaPeers` get any. A replica is reachable for the others as soon as its
ranks have been assigned, before it is ready: it must catch up first, and the others must pass on to it what
arrives meanwhile. It stays reachable while its ranks restart in place, so that the others wait for it instead
of promising less. It is not reachable

- while it drains: a copy that it holds would end with it;
- on a lost node, or after its pod has ended;
- while its restart waits for the back-off, or after it has failed.

A replica that drains or restarts still gets the others' addresses, because it must pass on what it holds.
Replicas of all revisions are peers, so a rollout hands over from the replicas before to those after it.

Each replica gets its own address first. So the list of a replica that runs alone is not empty, and an agent
that has lost the list is known by the empty list in its report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convoy_controllers.commands import Endpoints
from convoy_controllers.servingjob.activation import MAX_ADDRESSES, RESEND_SECONDS, replicas
from convoy_controllers.servingjob.groups import Group, slot_of
from convoy_controllers.servingjob.pods import address
from convoy_controllers.servingjob.restarts import pause_seconds
from convoy_controllers.servingjob.work import Work
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.terms import LABEL_REVISION, LABEL_ROLE


def addresses(own: str, reachable: Iterable[str], most: int = MAX_ADDRESSES) -> tuple[str, ...]:
    """Return the addresses for a replica: its own, then the others in the order of a ring that begins behind
    it. If there are more than `most`, each replica gets the next ones, so that all stay connected.
    """
    others = sorted(set(reachable) - {own})
    after = [one for one in others if one > own]
    before = [one for one in others if one < own]
    return (own, *after, *before)[:most]


def carry_out(work: Work) -> None:
    """Add the commands with the addresses that replicas do not know yet."""
    for command in _commands(work):
        work.commands.append(command)
        work.waits.append(RESEND_SECONDS)


def _commands(work: Work) -> Iterator[Endpoints]:
    reachable = set(_reachable(work))
    for pod in work.observed.own_pods:
        view, own = work.observed.slots.get(pod.uid), _address(work, pod)
        if view is None or not own or not view.incarnation or view.agent_away or ended(pod):
            continue
        wanted = addresses(own, reachable)
        if view.endpoints != wanted:
            yield Endpoints(view.node, pod.uid, view.incarnation, wanted)


def _reachable(work: Work) -> Iterator[str]:
    """Yield the addresses of the replicas that the others may rely on."""
    deleted = {one.uid for one in work.deletions}
    for group in replicas(work):
        first = group.pods.get(0)
        if first is None or first.uid in deleted or not _runs(work, group, first):
            continue
        if own := _address(work, first):
            yield own


def _runs(work: Work, group: Group, pod: PodView) -> bool:
    view, record = work.observed.slots.get(pod.uid), group.record
    if view is None or not view.incarnation or record.failed or pause_seconds(record, work.now) > 0:
        return False
    return not pod.deleting and not ended(pod) and pod.node not in work.lost.all


def _address(work: Work, pod: PodView) -> str:
    """Return the address of a pod that has peers; empty if it has none."""
    revision = work.revisions.get(pod.labels.get(LABEL_REVISION, ""))
    if revision is None or not pod.ip or slot_of(pod):
        return ""
    role = revision.spec.role(pod.labels.get(LABEL_ROLE, ""))
    if role is None or not role.replica_peers or role.name != revision.spec.serving_role:
        return ""
    return address(pod.ip, revision.spec.port)
