"""The part of a TrainingJob's spec that says when and where its state is saved."""

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
"""Between two checkpoints of a job whose interval is `Auto`, until it is known what one costs."""


class RemoteTier(Model):
    """Checkpoints that outlive the cluster's memory."""

    store: ObjectName
    """CheckpointStore to which the nodes' agents upload what is in memory."""
    every: Duration = "10m"
    """Shortest time between two generations that go to the store."""
    keep_last: Annotated[int, Field(ge=1, le=100)] = 2
    """Newest generations that stay in the store."""
    keep_every_steps: Annotated[int, Field(ge=0)] = 0
    """Besides, the first generation at or after each multiple of so many steps stays; 0 for none."""


class LocalTier(Model):
    """Checkpoints in the memory of the node that each rank runs on; they outlive its pod, and its agent."""

    memory: Bytes | None = None
    """Most memory of one node that the job may fill with them; without it, whatever the node's agent has."""


class PeerTier(Model):
    """Copies in the memory of other nodes of the job; they outlive the node."""

    copies: Annotated[int, Field(ge=1, le=4)] = 1
    """Of each rank's share. So many nodes may be lost at once."""
    topology_key: Annotated[str, Field(min_length=1, max_length=253)] = "topology.kubernetes.io/zone"
    """Node label; copies go to nodes with another value of it, as far as there are any."""


class Tiers(Model):
    """Where checkpoints are kept."""

    model_config = validated(
        Rule(
            "!has(self.peer) || has(self.local)",
            "peer copies are made of what is in local memory: add local: {}",
            ".peer",
        ),
        Rule(
            "!has(self.remote) || has(self.local)",
            "what goes to a store is read from memory: add local: {}",
            ".remote",
        ),
    )

    local: LocalTier | None = None
    peer: PeerTier | None = None
    remote: RemoteTier | None = None

    @property
    def any(self) -> bool:
        """Whether the job's state is saved at all."""
        return self.local is not None

    @property
    def store(self) -> str | None:
        """The CheckpointStore to which memory is uploaded."""
        return self.remote.store if self.remote else None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are used, nearest first."""
        return tuple(name for name in ("local", "peer", "remote") if getattr(self, name) is not None)


class ResumeFrom(Model):
    """Another job of the same namespace, with whose state in the same CheckpointStore a job begins."""

    model_config = validated(
        Rule("has(self.job) != has(self.uid)", "resumeFrom needs exactly one of job and uid"),
    )

    job: ObjectName | None = None
    """Its name, while it exists."""
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=64)] | None = None
    """Its `metadata.uid`, when it is gone."""
    step: Annotated[int, Field(ge=0)] = 0
    """Which of its generations, by the steps behind it; 0 for the newest."""


class Checkpoint(Model):
    """When and where the job saves its state."""

    model_config = validated(
        Rule(
            f"!has(self.interval) || self.interval != '{AUTO}' || (has(self.tiers) && has(self.tiers.local))",
            "interval Auto goes by what saves to memory cost: add tiers.local: {}, or name a time such as 5m",
            ".interval",
        ),
        Rule(
            "!has(self.resumeFrom) || (has(self.tiers) && has(self.tiers.remote))",
            "resumeFrom reads from the store that both jobs save to: name it in tiers.remote.store",
            ".resumeFrom",
        ),
    )

    interval: DurationOrAuto = "5m"
    """Longest time between two checkpoints while the job trains. `Auto`, with `tiers.local`, chooses it by
    what a checkpoint costs and how often the job fails; `status.checkpoint.interval` says what and why."""
    tiers: Tiers = Field(default_factory=Tiers)
    resume_from: ResumeFrom | None = None
    """What the job begins with, if it has saved nothing itself; else it begins at step 0."""

    @property
    def automatic(self) -> bool:
        """Whether the operator chooses the interval."""
        return self.interval == AUTO

    @property
    def interval_seconds(self) -> int:
        """Seconds between two checkpoints that the job's pods begin with."""
        return UNMEASURED_SECONDS if self.interval == AUTO else seconds(self.interval)
