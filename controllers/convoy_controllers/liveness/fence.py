"""The rule by which a node that is cut off stops the ranks of its Strict jobs. Pure: contact times in,
decision out.

Under Strict fencing a job's ranks are replaced elsewhere only after the old ones must have stopped. So an
agent stops a Strict job once, for FENCE_SECONDS, it has reached none of the three that could tell it that it
has not been given up: the hub, the API server, or more than half of the job's other nodes. A control plane
that is down stops nothing: its address refuses connections (an answer), or the job's nodes attest one
another. Two parts of a job that are cut off from each other never both live on by their peers alone.

A contact counts from when the question was sent, never from when the answer came: the agent's view of its
silence is never shorter than that of those it is silent to.

The rule does not cover an agent that restarts while it is cut off: it starts to count at its start, since
after a planned upgrade an old contact would mean nothing. Its ranks may then run on for as long as the agent
was away and FENCE_SECONDS after; without any agent they run until the launcher loses its pod. To exclude that
too, give the node a way to be switched off, and delete its Node object: that alone frees the operator from
waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from convoy_controllers.liveness.timings import KUBELET_LEASE_SECONDS, STOP_SECONDS

FENCE_SECONDS = 20.0
"""Silence after which an agent stops a Strict job. The operator replaces its ranks REPLACE_SECONDS after the
last sign of the agent."""
REPLACE_SECONDS = FENCE_SECONDS + STOP_SECONDS
"""Seconds from the last possible contact of a lost node until its Strict ranks must have ended."""
LEASE_SECONDS = KUBELET_LEASE_SECONDS + 1.0
"""Seconds by which a contact with the API server counts as older than it is. The operator sees such contacts
only by the kubelet's renewals of its Lease: it must never count less silence than the agent does."""
QUIET_SECONDS = 3.0
"""Silence of the hub after which the API server is tried; of both, after which peers are asked."""
MAX_CONTACTED = 128
"""Peers asked in one round; those of larger jobs take turns. 17 rounds reach the majority of 4,000 nodes."""

NEVER = float("-inf")

Peer = tuple[str, str]
"""(job uid, node)"""

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class StrictJob(Generic[P]):
    """A job under Strict fencing that has ranks to stop on this node."""

    uid: str
    name: str
    incarnation: int
    peers: Mapping[str, P]
    """By name, the job's other nodes; the value is how the caller reaches the node's agent."""
    pods: tuple[str, ...]
    """Uids of this node's pods whose ranks may run."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """Times of the last contact with each, in seconds of a clock that only moves forward and counts
    suspension."""

    hub: float
    api: float = NEVER
    peers: Mapping[Peer, float] = field(default_factory=dict)


def last_contact(job: StrictJob[P], contacts: Contacts) -> float:
    """Return the time of the newest contact that counts for this job."""
    times = [contacts.peers.get((job.uid, node), NEVER) for node in job.peers]
    return max(contacts.hub, contacts.api - LEASE_SECONDS, majority(times))


def majority(times: Sequence[float]) -> float:
    """Return the time since when more than half of the peers with these last contacts have been reached.

    NEVER without peers, and while half of them never were.
    """
    return sorted(times)[(len(times) - 1) // 2] if times else NEVER


def must_stop(jobs: Iterable[StrictJob[P]], contacts: Contacts, now: float) -> list[StrictJob[P]]:
    """Return the jobs whose ranks on this node are to be killed."""
    return [job for job in jobs if now - last_contact(job, contacts) >= FENCE_SECONDS]


def peers_to_contact(
    jobs: Iterable[StrictJob[P]], contacts: Contacts, requested: Mapping[Peer, float], now: float
) -> list[Peer]:
    """Return the peers to ask now: those asked longest ago first, none while hub or API server replies."""
    if now - max(contacts.hub, contacts.api) < QUIET_SECONDS:
        return []
    peers = [(job.uid, node) for job in jobs for node in job.peers]
    return sorted(peers, key=lambda peer: (requested.get(peer, NEVER), peer))[:MAX_CONTACTED]


def stop_reason(job: StrictJob[P], contacts: Contacts, now: float) -> str:
    """Return why the job was stopped, for the log and for the launcher's last line."""
    silence = now - last_contact(job, contacts)
    recent = sum(now - contacts.peers.get((job.uid, node), NEVER) < FENCE_SECONDS for node in job.peers)
    peers = f", nor more than {recent} of the job's {len(job.peers)} other nodes" if job.peers else ""
    return (
        f"fencing Strict: for {silence:.0f} s this node has reached neither the operator nor the API server"
        f"{peers}; ranks on another node may take the place of these"
    )
