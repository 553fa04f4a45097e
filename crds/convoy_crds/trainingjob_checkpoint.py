"""The part of a TrainingJob's spec that defines when and where its state is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
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
"""Seconds between two checkpoints with the interval `Auto`, until Convoy has measured the cost of a
checkpoint.
"""


class CheckpointDefault(StrEnum):
    """Tiers of a job with an empty `spec.checkpoint.tiers`."""

    MEMORY = "Memory"
    """Memory of the job's nodes, with one copy on another node, as far as the nodes have memory to spare. The
    job gives way to jobs that have `tiers.local`.
    """
    NONE = "None"
    """No tiers: a restart begins at step 0."""


@dataclass(frozen=True, slots=True)
class CheckpointDefaults:
    """The chart's settings for jobs with an empty `spec.checkpoint.tiers`."""

    default: CheckpointDefault = CheckpointDefault.NONE
    most: int = 0
    """Maximum bytes of such a job on one node; 0 for no maximum. The agent of a node never gives such jobs
    more than half of its memory each.
    """


class RemoteTier(Model):
    """Checkpoints in a CheckpointStore, outside the memory of the cluster's nodes."""

    store: ObjectName
    """CheckpointStore to which the agents of the nodes upload the checkpoints from memory."""
    every: Duration = "10m"
    """Minimum time between two uploaded generations."""
    keep_last: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of newest generations that the store keeps, besides those that ServingJobs load."""
    keep_every_steps: Annotated[int, Field(ge=0)] = 0
    """Number of steps. The store also keeps the first generation at or after each multiple of this number.
    0 keeps no such generations.
    """


class LocalTier(Model):
    """Checkpoints in the memory of each rank's node. They survive restarts of the pod and of the node's
    agent.
    """

    memory: Bytes | None = None
    """Maximum amount of memory that the job may use for checkpoints on one node. If absent, the job may use
    all memory that the node's agent has.
    """


ZONE_KEY = "topology.kubernetes.io/zone"
"""Node label that separates copies if nothing else is set."""


class PeerTier(Model):
    """Copies of checkpoints in the memory of other nodes of the job. They survive the loss of a node."""

    copies: Annotated[int, Field(ge=1, le=4)] = 1
    """Number of copies of each rank's part. The checkpoint survives if this many nodes are lost at the same
    time.
    """
    topology_key: Annotated[str, Field(min_length=1, max_length=317)] | None = None
    """Node label. If possible, a copy is stored on a node that has a different value of this label. If
    absent, it is the first key of `placement.topologyKeys`, or `topology.kubernetes.io/zone` without one.
    """

    def domain_key(self, topology_keys: Sequence[str] = ()) -> str:
        """Return the node label whose domains separate copies, for a job with these topology keys."""
        return self.topology_key or next(iter(topology_keys), ZONE_KEY)


class Tiers(Model):
    """Places in which checkpoints are kept."""

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
        """Return True if the job saves checkpoints in any tier."""
        return self.local is not None

    @property
    def store(self) -> str | None:
        """Return the name of the CheckpointStore for uploads; None without one."""
        return self.remote.store if self.remote else None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tiers that the job uses, in the order local, peer, remote."""
        return tuple(name for name in ("local", "peer", "remote") if getattr(self, name) is not None)


class ResumeFrom(Model):
    """Another job with the same namespace and CheckpointStore. The new job starts with the state that the
    other job has saved.
    """

    model_config = validated(
        Rule("has(self.job) != has(self.uid)", "resumeFrom needs exactly one of job and uid"),
    )

    job: ObjectName | None = None
    """Name of the other job, if it still exists."""
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=64)] | None = None
    """`metadata.uid` of the other job, if it has been deleted."""
    step: Annotated[int, Field(ge=0)] = 0
    """Step of the generation with which the new job starts. 0 means the newest generation."""


class Checkpoint(Model):
    """When and where the job saves checkpoints."""

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
    """Maximum time between two checkpoints while the job trains. With `Auto`, Convoy chooses the interval
    from the cost of a checkpoint and the job's fault rate; this needs `tiers.local`.
    `status.checkpoint.interval` shows the chosen interval and the reason.
    """
    tiers: Tiers = Field(default_factory=Tiers)
    journal: bool = True
    """True: a job that saves to memory every step or two writes a journal where that is smaller. False: every
    save is a full checkpoint.
    """
    default: CheckpointDefault | None = None
    """Tiers of the job if `tiers` is empty. If absent, the chart's value `checkpoints.default` applies.
    `status.checkpoint.tiers` shows the result.
    """
    resume_from: ResumeFrom | None = None
    """State with which the job starts if it has not saved a checkpoint itself. If absent, a new job starts
    at step 0.
    """

    @property
    def automatic(self) -> bool:
        """Return True if the operator chooses the interval."""
        return self.interval == AUTO

    @property
    def interval_seconds(self) -> int:
        """Return the checkpoint interval, in seconds, with which the job's pods start."""
        return UNMEASURED_SECONDS if self.interval == AUTO else seconds(self.interval)
