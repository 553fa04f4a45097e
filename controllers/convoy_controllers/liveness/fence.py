"""The rule by which a node that is cut off stops the ranks of its Strict jobs. Pure: contact times in,
decision out.

Under Strict fencing, a job's replacement ranks may start on other nodes only after the old ranks must have
stopped. Three parties can show an agent that its node has not been replaced: the hub, the API server, and
more than half of the job's other nodes. An agent stops a Strict job once it has reached none of these
parties for FENCE_SECONDS.

A control plane that is down stops no job. Either its address refuses connections, which counts as a
contact, or the job's nodes attest one another. If a job is cut into two parts, at most one part can
continue through its peers alone.

A contact counts from the time at which the request was sent, not from the time of the response. So the
agent never counts less silence than the other side does.

The rule does not cover an agent that restarts while it is cut off. Such an agent counts silence from its
start. It ignores earlier contacts, because after a planned upgrade an old contact does not show that the
node is cut off. Its ranks may then run for FENCE_SECONDS beyond the agent's absence. If no agent starts
again, the ranks run until the launcher loses its pod. To exclude both cases, power off the node and then
delete its Node object. Only the deletion ends the operator's wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from convoy_controllers.liveness.timings import KUBELET_LEASE_SECONDS, STOP_SECONDS

FENCE_SECONDS = 20.0
"""Seconds of silence after which an agent stops a Strict job. The operator replaces the job's ranks
REPLACE_SECONDS after the last contact with the agent.
"""
REPLACE_SECONDS = FENCE_SECONDS + STOP_SECONDS
"""Seconds from the last possible contact of a lost node until its Strict ranks must have ended."""
LEASE_SECONDS = KUBELET_LEASE_SECONDS + 1.0
"""Seconds that an agent adds to the age of its contact with the API server. The operator sees only the
renewals of the kubelet's Lease, and the last renewal may be one interval older than the agent's contact.
The agent must never count less silence than the operator does.
"""
QUIET_SECONDS = 3.0
"""Seconds of the hub's silence after which the API server is contacted. If both are silent for as long,
peers are contacted.
"""
MAX_CONTACTED = 128
"""Maximum number of peers to contact in one round. Larger jobs need several rounds: 17 rounds reach the
majority of 4,000 nodes.
"""

NEVER = float("-inf")

Peer = tuple[str, str]
"""A peer of a job: (job uid, node name)."""

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class StrictJob(Generic[P]):
    """A job under Strict fencing with ranks on this node."""

    uid: str
    name: str
    incarnation: int
    peers: Mapping[str, P]
    """The job's other nodes by name. The value tells the caller how to reach the node's agent."""
    pods: tuple[str, ...]
    """Uids of this node's pods whose ranks may run."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """Times of the last contacts with the hub, the API server and peers.

    Times are seconds of a clock that never goes back and continues while the machine is suspended.
    """

    hub: float
    api: float = NEVER
    peers: Mapping[Peer, float] = field(default_factory=dict)


def last_contact(job: StrictJob[P], contacts: Contacts) -> float:
    """Return the time of the newest contact that counts for this job, on the clock of `contacts`."""
    times = [contacts.peers.get((job.uid, node), NEVER) for node in job.peers]
    return max(contacts.hub, contacts.api - LEASE_SECONDS, majority(times))


def majority(times: Sequence[float]) -> float:
    """Return the latest time since which more than half of the peers have been reached. `times`: each
    peer's last contact.

    Return NEVER if there are no peers, or if half of them or more were never reached.
    """
    return sorted(times)[(len(times) - 1) // 2] if times else NEVER


def must_stop(jobs: Iterable[StrictJob[P]], contacts: Contacts, now: float) -> list[StrictJob[P]]:
    """Return the jobs whose ranks on this node must be killed."""
    return [job for job in jobs if now - last_contact(job, contacts) >= FENCE_SECONDS]


def peers_to_contact(
    jobs: Iterable[StrictJob[P]], contacts: Contacts, requested: Mapping[Peer, float], now: float
) -> list[Peer]:
    """Return the peers to contact now; those not contacted for the longest time come first. The list is
    empty while the hub or the API server replies.
    """
    if now - max(contacts.hub, contacts.api) < QUIET_SECONDS:
        return []
    peers = [(job.uid, node) for job in jobs for node in job.peers]
    return sorted(peers, key=lambda peer: (requested.get(peer, NEVER), peer))[:MAX_CONTACTED]


def stop_reason(job: StrictJob[P], contacts: Contacts, now: float) -> str:
    """Return the reason why the job was stopped, for the log and for the launcher's last line."""
    silence = now - last_contact(job, contacts)
    recent = sum(now - contacts.peers.get((job.uid, node), NEVER) < FENCE_SECONDS for node in job.peers)
    peers = f"; it reached only {recent} of the job's {len(job.peers)} other nodes" if job.peers else ""
    return (
        f"fencing Strict: for {silence:.0f} s this node has reached neither the operator nor the API server"
        f"{peers}. Its ranks stop, since replacements may start on another node"
    )
