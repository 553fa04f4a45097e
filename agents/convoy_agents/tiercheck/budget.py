"""How much of the node's memory jobs may have, and who has it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job gets no more."""

    missing: int
    """Bytes by which it does not fit."""
    limit: int
    """Of the node, or of the job itself."""
    own: bool
    """Whether it is the job's own limit (spec.checkpoint.tiers.local.memory)."""
    others: int
    """Bytes that other jobs have."""

    def __str__(self) -> str:
        whose = "the job" if self.own else "the node"
        others = f", other jobs have {self.others}" if self.others and not self.own else ""
        return f"{self.missing} bytes are missing: {whose} may have {self.limit}{others}"


@dataclass(slots=True)
class Budget:
    """Bytes of memory for checkpoints on one node."""

    limit: int
    shares: dict[str, int] = field(default_factory=dict)
    """By job uid."""

    @property
    def used(self) -> int:
        """Given out."""
        return sum(self.shares.values())

    def grow(self, job: str, share: int, own_limit: int = 0) -> Refusal | None:
        """Gives a job a share of so many bytes, not less than it has; a refusal changes nothing.

        `own_limit`: what the job may have at most; 0 for whatever the node has.
        """
        share = max(share, self.shares.get(job, 0))
        others = self.used - self.shares.get(job, 0)
        if own_limit and share > own_limit:
            return Refusal(share - own_limit, own_limit, own=True, others=others)
        if others + share > self.limit:
            return Refusal(others + share - self.limit, self.limit, own=False, others=others)
        self.shares[job] = share
        return None

    def free(self, job: str) -> None:
        """The job has no share any more."""
        self.shares.pop(job, None)
