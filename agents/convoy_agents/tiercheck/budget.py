"""The budget of a node's memory for checkpoints: the node's limit, and the share of each job. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.checkpoint.replica_state import job_of

_OWN = "the job's limit (spec.checkpoint.tiers.local.memory)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a job gets no more memory."""

    missing: int
    """Bytes by which the request exceeds the limit."""
    limit: int
    """The exceeded limit in bytes: the node's, or the job's own."""
    own: bool
    """True if `limit` is the job's own limit (spec.checkpoint.tiers.local.memory), False if it is the
    node's.
    """
    others: int
    """Bytes that other jobs use on the node."""
    by_default: bool = False
    """True if the job has no tiers in its spec."""

    def __str__(self) -> str:
        own = "the limit without spec.checkpoint.tiers" if self.by_default else _OWN
        limit = own if self.own else "the node's limit"
        others = f", of which other jobs use {self.others}" if self.others and not self.own else ""
        return f"{self.missing} more bytes are needed: {limit} is {self.limit} bytes{others}"


@dataclass(slots=True)
class Budget:
    """The memory for checkpoints on one node, in bytes."""

    limit: int
    shares: dict[str, int] = field(default_factory=dict)
    """Bytes of each share, by uid of the job or of a replica's state."""

    @property
    def used(self) -> int:
        """Bytes of all shares together."""
        return sum(self.shares.values())

    def grow(self, job: str, share: int, own_limit: int = 0) -> Refusal | None:
        """Grow a job's share to at least `share` bytes. Return a refusal, and change nothing, if a limit
        would be exceeded.

        If the share is already larger, it stays as it is. `own_limit`: the limit in bytes of all shares of
        the same job; 0 if it has none. Each replica of a ServingJob has a share.
        """
        share = max(share, self.shares.get(job, 0))
        others = self.used - self.shares.get(job, 0)
        owner = job_of(job)
        own = share + sum(size for uid, size in self.shares.items() if uid != job and job_of(uid) == owner)
        if own_limit and own > own_limit:
            return Refusal(own - own_limit, own_limit, own=True, others=others)
        if others + share > self.limit:
            return Refusal(others + share - self.limit, self.limit, own=False, others=others)
        self.shares[job] = share
        return None

    def free(self, job: str) -> None:
        """Remove a job's share."""
        self.shares.pop(job, None)
