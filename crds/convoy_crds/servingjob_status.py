"""The status of a ServingJob: its replicas, revisions, model and traffic."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from convoy_crds.advice import MAX_FINDINGS, AdviceFinding
from convoy_crds.meta import Bookkeeping, Condition, StatusModel, map_list
from convoy_crds.placement import GangBackend

MAX_REVISIONS = 5
"""Number of the newest revisions that are kept for an undo. Revisions in use are kept too."""
MAX_LISTED = 64
"""Maximum number of revisions in `status.revisions`. Many edits during one rollout leave more of them in use.
"""
MAX_DECISIONS = 5
"""Maximum number of the autoscaler's decisions that the status keeps for a role."""
MAX_GROUPS = 1_000
"""Maximum number of replicas of one role."""
_MAX_RECORDS = 16_000
"""Maximum number of replicas of all roles, with the surge of a rollout."""


class ServingRoleStatus(StatusModel):
    """The state of one role's replicas."""

    name: str
    desired: int = 0
    replicas: int = 0
    """Number of replicas that exist and are not being deleted."""
    ready: int = 0
    """Number of replicas that receive requests."""
    updated: int = 0
    """Number of replicas of the revision `status.updateRevision`."""
    updated_ready: int = 0
    """Number of replicas of the revision `status.updateRevision` that receive requests."""


class RevisionStatus(StatusModel):
    """A revision of the pod templates, which a ControllerRevision stores."""

    name: str
    number: int = 0
    """Number of the revision, as in a ControllerRevision. The newest revision has the highest number."""


class ModelStatus(StatusModel):
    """The generation that the replicas load, and its origin."""

    job: str = ""
    """Name of the TrainingJob that saved the generation; absent if `spec.model.checkpoint` names the job by
    uid.
    """
    uid: str
    """`metadata.uid` of the TrainingJob."""
    store: str = ""
    incarnation: int = 0
    step: int = 0
    loss: float | None = None
    """Loss that the TrainingJob reported when Convoy chose the generation, if known."""
    since: datetime | None = None
    """Time at which Convoy chose the generation."""


class Traffic(StatusModel):
    """Figures of all replicas together, as the agents reported them last."""

    p95_ms: float | None = None
    """95th percentile of the duration of requests, in milliseconds."""
    ttft_ms: float | None = None
    """95th percentile of the time to the first token, in milliseconds."""
    requests_per_second: float | None = None
    errors_per_second: float | None = None
    """Number of requests per second that ended with an error of the replica, or at their deadline."""
    refused_per_second: float | None = None
    """Number of requests per second that replicas refused, for example because their queue was full."""
    tokens_per_second: float | None = None
    queue: int | None = None
    """Number of requests that wait for the compute loop."""
    in_flight: int | None = None
    """Number of requests that are being computed."""


class ScalingDecision(StatusModel):
    """A change of a role's number of replicas by the autoscaler."""

    time: datetime
    from_replicas: int = 0
    to_replicas: int = 0
    reason: str = ""
    """Reason of the change, as in the condition AbleToScale or ScalingLimited."""
    message: str = ""


class ScalingStatus(StatusModel):
    """The newest decisions about a role that Convoy's autoscaler scales."""

    role: str
    decisions: Annotated[list[ScalingDecision], Field(max_length=MAX_DECISIONS)] = Field(default_factory=list)
    """Changes of the number of replicas, the newest first."""


class SavedStates(StatusModel):
    """The states that replicas have saved to the memory of nodes."""

    replicas: int = 0
    """Number of replicas that have saved or restored a state."""
    copied: int = 0
    """Number of replicas whose newest state has all its copies on other nodes."""
    oldest: datetime | None = None
    """Time at which the oldest of the replicas' newest states was saved, to within a minute."""


class GangRecord(Bookkeeping):
    """The gang of one replica, as Convoy chose it when the replica's first pods were created."""

    backend: GangBackend = GangBackend.NONE
    name: str = ""
    """Name of the PodGroup."""
    topology_key: str = ""
    """Node label of which one domain must hold all pods."""


class GroupRecord(Bookkeeping):
    """The incarnation and the restarts of one replica."""

    role: str
    number: int
    revision: str = ""
    incarnation: int = 0
    membership: str = ""
    """Digest of the pods in the incarnation. Absent while the incarnation waits for its pods."""
    times: Annotated[list[datetime], Field(max_length=128)] = Field(default_factory=list)
    """Times of the counted restarts within `recovery.windowSeconds`, the oldest first."""
    not_before: datetime | None = None
    """Time before which the next incarnation must not form."""
    error: Annotated[str, Field(max_length=1024)] = ""
    """First fault of the current series of restarts. Absent when the replica is ready."""
    reason: str = ""
    """Reason of that fault."""
    failed: datetime | None = None
    """Time at which the replica used up its restarts. Absent while Convoy restarts it."""
    gang: GangRecord | None = None
    """Absent if each pod of the replica starts alone."""
    no_room: bool = False
    """True if no room was found for the missing pods at the last search."""
    listed_at: datetime | None = None
    """Time at which Convoy first saw the replica in the Service's EndpointSlices. Absent while it is not
    there.
    """


class RolloutRecord(Bookkeeping):
    """The progress on which the deadline of a rollout depends."""

    revision: str = ""
    updated_ready: int = 0
    """Highest number of ready replicas of the revision during this rollout."""
    progress_at: datetime | None = None
    """Time of the last progress: the revision changed, more of its replicas became ready than ever before, or
    fewer older replicas were left.
    """
    old: int = 0
    """Lowest number of replicas of older revisions during this rollout."""


class ServingInternal(Bookkeeping):
    """Bookkeeping of the operator, for Convoy only. It is not part of the API and may change in any release.
    Fields with an empty value or 0 are absent.
    """

    incarnation: int = 0
    """Highest incarnation of all replicas. It never decreases."""
    groups: Annotated[list[GroupRecord], Field(max_length=_MAX_RECORDS)] = Field(default_factory=list)
    rollout: RolloutRecord = Field(default_factory=RolloutRecord)


class ServingJobStatus(StatusModel):
    """State of the job. Only the operator writes the status."""

    observed_generation: int = 0
    reason: str = ""
    """Reason of the condition that needs attention first."""
    message: str = ""
    ready: str = ""
    """Ready and desired replicas of all roles together, such as `3/4`."""
    replicas: int = 0
    """Number of replicas of the scaled role that exist and are not being deleted."""
    ready_replicas: int = 0
    """Number of replicas of the scaled role that receive requests."""
    updated_replicas: int = 0
    """Number of replicas of the scaled role that have the revision `updateRevision`."""
    updated_ready_replicas: int = 0
    """Number of replicas of the scaled role that have the revision `updateRevision` and receive requests."""
    current_revision: str = ""
    """Revision that last ran in all replicas."""
    update_revision: str = ""
    """Revision that the replicas run or roll to."""
    selector: str = ""
    """Label selector of the scaled role's pods in slot 0, for autoscalers."""
    conditions: Annotated[list[Condition], Field(max_length=24, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    packed: str = ""
    """Replicas whose pods all run in one domain of the first key of `spec.placement.topologyKeys`, and all
    replicas of several pods whose pods have nodes, such as `3/4`. Absent without `topologyKeys`.
    """
    roles: Annotated[list[ServingRoleStatus], Field(max_length=8, json_schema_extra=map_list("name"))] = (
        Field(default_factory=list)
    )
    revisions: Annotated[
        list[RevisionStatus], Field(max_length=MAX_LISTED, json_schema_extra=map_list("name"))
    ] = Field(default_factory=list)
    """Stored revisions, the newest first. `spec.rollout.revision` may name one of them."""
    model: ModelStatus | None = None
    """Absent unless `spec.model.checkpoint` is set."""
    checkpoint: SavedStates | None = None
    """Absent without `spec.checkpoint.tiers`."""
    traffic: Traffic | None = None
    """Absent until an agent has reported requests."""
    last_scale_time: datetime | None = None
    """Time at which Convoy's autoscaler last changed a role's number of replicas."""
    scaling: Annotated[list[ScalingStatus], Field(max_length=8, json_schema_extra=map_list("role"))] = Field(
        default_factory=list
    )
    """The autoscaler's decisions, for each role whose `scaling` has mode Convoy."""
    advice: Annotated[list[AdviceFinding], Field(max_length=MAX_FINDINGS)] = Field(default_factory=list)
    """Rules of advice that the job violates, at most 16. Absent without `spec.lint`."""
    internal: ServingInternal = Field(default_factory=ServingInternal)
