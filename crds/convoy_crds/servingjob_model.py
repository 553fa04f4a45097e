"""The part of a ServingJob's spec that names the model which the replicas load."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Duration, Model, ObjectName, Rule, validated


class CheckpointSource(Model):
    """A generation that a TrainingJob of the same namespace has saved to a CheckpointStore."""

    model_config = validated(
        Rule("has(self.job) != has(self.uid)", "checkpoint needs exactly one of job and uid"),
        Rule(
            "!has(self.uid) || (has(self.step) && self.step > 0)",
            "uid needs step: the newest generation of a deleted job is not known",
            ".step",
        ),
        Rule(
            "!has(self.follow) || !self.follow || (has(self.job) && (!has(self.step) || self.step == 0))",
            "follow needs job and no step, because it moves to each newer generation",
            ".follow",
        ),
    )

    job: ObjectName | None = None
    """Name of the TrainingJob, if it still exists."""
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=64)] | None = None
    """`metadata.uid` of the TrainingJob, if it has been deleted."""
    store: ObjectName
    """CheckpointStore with the generation. Its `allowedNamespaces` must include the job's namespace."""
    step: Annotated[int, Field(ge=0)] = 0
    """Step of the generation. 0 means the newest generation at the time when Convoy first needs it."""
    follow: bool = False
    """True: the replicas roll to each newer generation of the job."""
    min_interval: Duration = "10m"
    """Minimum time between two rolls to a newer generation. No such roll starts during a rollout."""


class VolumeSource(Model):
    """A folder with safetensors files in a PersistentVolumeClaim. Pickle files are refused."""

    model_config = validated(
        Rule(
            "!has(self.path) || !self.path.matches('(^|/)[.][.](/|$)')",
            "path must not leave the volume: it may not have '..' as a folder",
            ".path",
        ),
    )

    claim_name: ObjectName
    path: Annotated[str, Field(pattern=r"^[^/].*$|^$", max_length=1024)] = ""
    """Folder inside the volume. Empty: the root of the volume."""


class ModelSource(Model):
    """The model that the replicas load."""

    model_config = validated(
        Rule("has(self.checkpoint) != has(self.volume)", "model needs exactly one of checkpoint and volume"),
    )

    checkpoint: CheckpointSource | None = None
    volume: VolumeSource | None = None
