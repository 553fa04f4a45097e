"""The stragglers of a TrainingJob, and the basis on which ranks are named as stragglers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import StatusModel


class Proof(StrEnum):
    """Basis on which ranks are named as stragglers."""

    PEERS = "Peers"
    """At least four ranks do the same work, and the named ranks take longer than the others."""
    FEW_PEERS = "FewPeers"
    """Fewer than four ranks do the same work. The named ranks take longer than these, than in their own past
    or than the other stages of their replica. They are suspects: only a health sweep can prove that their
    node is slow, so Convoy takes no other action on it.
    """


class Straggler(StatusModel):
    """A cause that slows the job down."""

    cause: str
    """One of Compute, Thermal, Communication, Input, Host, Imbalance, CommonMode and Unknown."""
    place: str
    """Kind of the part that is slow: rank, node, link, group, rack, class, replica, stages, replicas or
    job.
    """
    ranks: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """Ranks that cause the delay, at most 64. Empty if no rank causes it."""
    nodes: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    """Nodes of the ranks in `ranks`, at most 16."""
    since_step: int = 0
    slowdown: float = 0.0
    """Additional time relative to the peers: 0.4 means that the slow part needs 40 % more time than its
    peers.
    """
    lost: float = 0.0
    """Maximum part of the job's time that could be saved, as a fraction: 0.3 is 30 %."""
    persistent: bool = False
    """True if the delay started at least 16 windows ago and was found in at least 70 % of the windows since
    then.
    """
    proof: Proof = Proof.PEERS
