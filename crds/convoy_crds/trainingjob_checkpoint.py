"""The part of a TrainingJob's spec that defines when and where its state is saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_crds.meta import (
    AUTO,
    Bytes,
    Duration,
    DurationOrAuto,
    Model,
    ObjectName,
    Rule,
    seconds,
    validated,
)

UNMEASURED_SECONDS = 300
"""Seconds between two checkpoints under the interval `Auto`, until Convoy has measured their cost."""


class RemoteTier(Model):
    """Checkpoints in a CheckpointStore, outside the cluster's memory."""

    store: ObjectName
    """CheckpointStore to which the nodes' agents upload the checkpoints from memory."""
    every: Duration = "10m"
    """Least time between two uploaded generations."""
    keep_last: Annotated[int, Field(ge=1, le=100)] = 2
    """Newest generations that the store keeps."""
    keep_every_steps: Annotated[int, Field(ge=0)] = 0
    """The store also keeps the first generation at or after each multiple of this many steps. 0 keeps none.
    """


class LocalTier(Model):
    """Checkpoints in the memory of each rank's node. They survive restarts of its pod and of the agent."""

    memory: Bytes | None = None
    """Most memory that the job may use for checkpoints on one node. Absent: all memory that the node's
    agent has.
    """


class PeerTier(Model):
    """Copies in the memory of other nodes of the job. They survive the loss of a node."""

    copies: Annotated[int, Field(ge=1, le=4)] = 1
    """Copies of each rank's share. The checkpoint survives the simultaneous loss of this many nodes."""
    topology_key: Annotated[str, Field(min_length=1, max_length=253)] = "topology.kubernetes.io/zone"
    """Node label. Where possible, copies go to nodes with a different value of it."""


class Tiers(Model):
    """Places where checkpoints are kept."""

    model_config = validated(
        Rule(
            "!has(self.peer) || has(self.local)",
            "peer copies are made from local memory: add local: {}",
            ".peer",
        ),
        Rule(
            "!has(self.remote) || has(self.local)",
            "uploads to a store read from local memory: add local: {}",
            ".remote",
        ),
    )

    local: LocalTier | None = None
    peer: PeerTier | None = None
    remote: RemoteTier | None = None

    @property
    def any(self) -> bool:
        """True if the job saves its state at all."""
        return self.local is not None

    @property
    def store(self) -> str | None:
        """Name of the CheckpointStore that receives uploads."""
        return self.remote.store if self.remote else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the used tiers, nearest first."""
        return tuple(name for name in ("local", "peer", "remote") if getattr(self, name) is not None)


class ResumeFrom(Model):
    """Another job of the same namespace and CheckpointStore. The new job starts with its saved state."""

    model_config = validated(
        Rule("has(self.job) != has(self.uid)", "resumeFrom needs exactly one of job and uid"),
    )

    job: ObjectName | None = None
    """Name of the other job, while it exists."""
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=64)] | None = None
    """`metadata.uid` of the other job, after it has been deleted."""
    step: Annotated[int, Field(ge=0)] = 0
    """Step of the generation to start from. 0 means the newest."""


class Checkpoint(Model):
    """Interval and places of the job's checkpoints."""

    model_config = validated(
        Rule(
            f"!has(self.interval) || self.interval != '{AUTO}' || (has(self.tiers) && has(self.tiers.local))",
            "interval Auto needs the measured cost of saves to memory: add tiers.local: {}, or set a "
            "time such as 5m",
            ".interval",
        ),
        Rule(
            "!has(self.resumeFrom) || (has(self.tiers) && has(self.tiers.remote))",
            "resumeFrom reads from the store that both jobs save to: set tiers.remote.store",
            ".resumeFrom",
        ),
    )

    interval: DurationOrAuto = "5m"
    """Longest time between two checkpoints while the job trains. `Auto` needs `tiers.local` and chooses the
    interval from the cost of a checkpoint and the job's fault rate. `status.checkpoint.interval` shows
    the choice and its reason.
    """
    tiers: Tiers = Field(default_factory=Tiers)
    resume_from: ResumeFrom | None = None
    """State to start from if the job has saved none itself. Without it a new job starts at step 0."""

    @property
    def automatic(self) -> bool:
        """True if the operator chooses the interval."""
        return self.interval == AUTO

    @property
    def interval_seconds(self) -> int:
        """Seconds between two checkpoints, as the job's pods get them at the start."""
        return UNMEASURED_SECONDS if self.interval == AUTO else seconds(self.interval)
