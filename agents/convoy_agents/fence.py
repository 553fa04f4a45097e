"""When a node that is cut off must stop the ranks of its Strict jobs. Pure: contact times in, decision out.

Under Strict fencing a job's ranks are replaced elsewhere only after the old ones must have stopped. So an
agent stops a Strict job once, for FENCE_SECONDS, it has reached none of the three that could tell it that it
has not been given up: the hub, the API server, or more than half of the job's other nodes. A control plane
that is down stops nothing: its address refuses connections (an answer), or the job's nodes vouch for one
another. Two parts of a job that are cut off from each other never both live on by their peers alone.

A contact counts from when what was answered had been sent, never from when the answer came: the agent's view
of its silence is never shorter than that of those it is silent to.

What this does not cover: an agent that is restarted while it is cut off starts to count at its start, since
after a planned upgrade an old contact would mean nothing. Its ranks may then run on for as long as the agent
was away and FENCE_SECONDS after; without any agent they run until the launcher loses its pod. Who must
exclude that too gives the node a way to be switched off, and deletes its Node object: that alone frees the
operator from waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Member
from convoy_agents.pods.state import PodState

FENCE_SECONDS = 20.0
"""Silence after which a Strict job is stopped. The operator counts with it (controllers, nodes.py)."""
LEASE_SECONDS = 11.0
"""By how much a contact with the API server counts as older than it is. The operator sees such contacts only
by the kubelet's renewals of its Lease, 10 s apart: it must never count less silence than the agent does."""
QUIET_SECONDS = 3.0
"""Silence of the hub after which the API server is tried; of both, after which peers are asked."""
MAX_ASKED = 128
"""Peers asked in one round; those of larger jobs take turns. 17 rounds reach the majority of 4,000 nodes."""

NEVER = float("-inf")

Peer = tuple[str, str]
"""(job uid, node)"""


@dataclass(frozen=True, slots=True)
class StrictJob:
    """A job under Strict fencing that has ranks to stop on this node."""

    uid: str
    name: str
    incarnation: int
    peers: Mapping[str, Member]
    """By node: one member of the job on each other node."""
    pods: tuple[str, ...]
    """Uids of this node's pods whose ranks may run."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """When each was last reached, in seconds of a clock that only moves forward and counts suspension."""

    hub: float
    api: float = NEVER
    peers: Mapping[Peer, float] = field(default_factory=dict)


def strict_jobs(pods: Iterable[PodState], node: str) -> list[StrictJob]:
    """The Strict jobs of this node that are not being stopped already."""
    found: dict[str, list[PodState]] = {}
    for pod in pods:
        if pod.assignment and pod.assignment.strict and _may_run(pod):
            found.setdefault(pod.assignment.job_uid, []).append(pod)
    return [_job(states, node) for states in found.values()]


def reached(job: StrictJob, contacts: Contacts) -> float:
    """When anybody whose word counts for this job was last reached."""
    times = [contacts.peers.get((job.uid, node), NEVER) for node in job.peers]
    return max(contacts.hub, contacts.api - LEASE_SECONDS, majority(times))


def majority(times: Sequence[float]) -> float:
    """Since when more than half of the peers with these last contacts have all been reached.

    NEVER without peers, and while half of them never were.
    """
    return sorted(times)[(len(times) - 1) // 2] if times else NEVER


def must_stop(jobs: Iterable[StrictJob], contacts: Contacts, now: float) -> list[StrictJob]:
    """The jobs whose ranks on this node are to be killed."""
    return [job for job in jobs if now - reached(job, contacts) >= FENCE_SECONDS]


def to_ask(
    jobs: Iterable[StrictJob], contacts: Contacts, asked: Mapping[Peer, float], now: float
) -> list[Peer]:
    """The peers to ask now, none while hub or API server answers; who was asked longest ago comes first."""
    if now - max(contacts.hub, contacts.api) < QUIET_SECONDS:
        return []
    peers = [(job.uid, node) for job in jobs for node in job.peers]
    return sorted(peers, key=lambda peer: (asked.get(peer, NEVER), peer))[:MAX_ASKED]


def words(job: StrictJob, contacts: Contacts, now: float) -> str:
    """Why the job was stopped, for the log and for the launcher's last line."""
    silence = now - reached(job, contacts)
    answered = sum(now - contacts.peers.get((job.uid, node), NEVER) < FENCE_SECONDS for node in job.peers)
    peers = f", nor more than {answered} of the job's {len(job.peers)} other nodes" if job.peers else ""
    return (
        f"fencing Strict: for {silence:.0f} s this node has reached neither the operator nor the API server"
        f"{peers}; ranks on another node may take the place of these"
    )


def _may_run(pod: PodState) -> bool:
    if pod.shutdown and pod.shutdown.immediate:
        return False
    assert pod.assignment  # noqa: S101 - the caller looked
    ended = [rank.update.state == "EXITED" for rank in pod.ranks.values()]
    # What is not known of, because the agent is new, may run.
    return len(ended) < pod.assignment.processes or not all(ended)


def _job(pods: Collection[PodState], node: str) -> StrictJob:
    """By the newest plan: a pod of an earlier one may still be leaving."""
    plan = max((pod.assignment for pod in pods if pod.assignment), key=lambda plan: plan.incarnation)
    peers = {member.node: member for member in plan.members if member.node != node}
    return StrictJob(plan.job_uid, plan.job, plan.incarnation, peers, tuple(sorted(pod.uid for pod in pods)))
