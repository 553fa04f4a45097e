"""The part of a ServingJob's spec that defines where its replicas save their state."""

from __future__ import annotations

from pydantic import Field

from convoy_crds.meta import Model, Rule, validated
from convoy_crds.trainingjob_checkpoint import LocalTier, PeerTier


class ServingTiers(Model):
    """Places in which the states of replicas are kept. The state of a replica costs time to build again, such
    as an index or a cache. So it is never uploaded to a store.
    """

    model_config = validated(
        Rule(
            "!has(self.peer) || has(self.local)",
            "peer copies are made from local memory: add local: {}",
            ".peer",
        ),
    )

    local: LocalTier | None = None
    """Memory of the replica's node. `memory` bounds all states of the job on one node."""
    peer: PeerTier | None = None
    """Copies on other nodes with replicas of the same role and revision."""

    @property
    def any(self) -> bool:
        """Return True if replicas may save their state."""
        return self.local is not None


class ServingCheckpoint(Model):
    """Where replicas save their state."""

    tiers: ServingTiers = Field(default_factory=ServingTiers)
