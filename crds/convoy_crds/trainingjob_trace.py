"""The traces of a TrainingJob: which steps are recorded, and what became of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Bookkeeping, Model, ObjectName, Rule, StatusModel, map_list, validated

MAX_STEPS = 100
"""Maximum number of steps of one recording."""
MAX_RANKS = 64
"""Maximum number of ranks of one recording."""
MAX_STEP, MAX_RANK = 2**53 - 1, 2**20 - 1
DEFAULT_STEPS = 2

StepCount = Annotated[int, Field(ge=1, le=MAX_STEPS)]


class TraceSteps(Model):
    """Consecutive steps of the training."""

    first: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    """Number of the first step. If absent, Convoy chooses one that all ranks still have ahead of them."""
    count: StepCount = DEFAULT_STEPS
    """Number of steps."""


class TraceOnStraggler(Model):
    """Recordings that Convoy starts when it names a straggler: of the slow rank, and of a rank that is not
    slow. Each straggler is recorded once.
    """

    count: StepCount = DEFAULT_STEPS
    """Number of steps."""
    cooldown_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """Seconds from the end of a recording until the next straggler is recorded."""
    max_recordings: Annotated[int, Field(ge=1, le=20)] = 3
    """Maximum number of such recordings of the job."""


class Trace(Model):
    """Chakra execution traces of some steps. They may be asked for while the job runs, which restarts
    nothing. A trace that cannot be recorded never ends the job.
    """

    model_config = validated(
        Rule("has(self.steps) || has(self.onStraggler)", "trace needs steps, onStraggler or both"),
    )

    steps: TraceSteps | None = None
    """Steps to record now. If absent, only stragglers are recorded."""
    ranks: (
        Annotated[
            list[Annotated[int, Field(ge=0, le=MAX_RANK)]],
            Field(min_length=1, max_length=MAX_RANKS, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Ranks that record `steps`. If absent, all ranks; a job with more than 64 ranks must name them."""
    store: ObjectName | None = None
    """CheckpointStore for the files. If absent, that of `checkpoint.tiers.remote`."""
    max_mebibytes: Annotated[int, Field(ge=1, le=32)] = 16
    """Maximum size of the file of one rank, in MiB. A larger trace is not stored."""
    on_straggler: TraceOnStraggler | None = None
    """If present, Convoy also records stragglers."""
    request_id: Annotated[str, Field(max_length=64)] = ""
    """Any change of this text records `steps` once more."""


class TraceTrigger(StrEnum):
    """Origin of a recording."""

    REQUEST = "Request"
    """`spec.trace.steps`."""
    STRAGGLER = "Straggler"
    """`spec.trace.onStraggler`."""


class TraceState(StrEnum):
    """State of a recording."""

    WAITING = "Waiting"
    """The ranks have not reached the first step."""
    RECORDING = "Recording"
    """The ranks record the steps, or convert and store them."""
    STORED = "Stored"
    """The files of all ranks are in the store."""
    FAILED = "Failed"
    """At least one file is missing. The reason says why."""


class TraceStraggler(StatusModel):
    """The straggler that caused a recording."""

    rank: int
    node: str = ""
    """Node of the rank. Empty if it is not known."""
    cause: str = ""
    """Cause of the slowness, as in `status.stragglers`."""
    since_step: int = 0


class TraceFile(StatusModel):
    """The trace of one rank in the store."""

    rank: int
    file: str
    """Path of the file in the store, from the folder of the job on."""
    bytes: int = 0
    sha256: str = ""
    nodes: int = 0
    """Number of nodes of the graph."""
    comm_bytes_per_step: int = 0
    """Bytes that the rank put into communications, per step."""
    exposed_communication_ratio: float = 0.0
    """Part of the recorded time in which a communication ran and no computation, as a fraction."""


class TraceStatus(StatusModel):
    """The newest recording of `spec.trace`. Absent before the first."""

    recording: int = 0
    """Number of the recording. The names of its files contain it. A recording that begins again, on other
    steps or in a new incarnation, gets another number, so the files of two attempts never mix.
    """
    attempt: int = 1
    """1 if the recording has begun once. Each further attempt adds 1. The files are of the newest attempt."""
    trigger: TraceTrigger = TraceTrigger.REQUEST
    state: TraceState = TraceState.WAITING
    reason: str = ""
    message: str = ""
    request_id: str = ""
    """Value of `spec.trace.requestId` for a recording that the spec asked for."""
    straggler: TraceStraggler | None = None
    """The straggler that caused the recording. Absent if the spec asked for it."""
    incarnation: int = 0
    """Incarnation of the ranks that record."""
    first_step: int | None = None
    """First recorded step. Absent until Convoy has chosen it."""
    last_step: int | None = None
    ranks: Annotated[list[int], Field(max_length=MAX_RANKS)] = Field(default_factory=list)
    """Ranks that record."""
    store: str = ""
    """CheckpointStore that has the files."""
    files: Annotated[list[TraceFile], Field(max_length=MAX_RANKS, json_schema_extra=map_list("rank"))] = (
        Field(default_factory=list)
    )
    bytes: int = 0
    """Size of all files."""
    nodes: int = 0
    """Nodes of all files."""
    comm_bytes_per_step: int = 0
    """Bytes that a rank put into communications, per step: the largest value of all files."""
    exposed_communication_ratio: float = 0.0
    """The largest value of all files."""
    completed_at: datetime | None = None
    """Time at which the recording was stored or failed."""

    @property
    def over(self) -> bool:
        """Return True if the recording is stored or has failed."""
        return self.state in (TraceState.STORED, TraceState.FAILED)


class RequestedTrace(Bookkeeping):
    """The request that a recording carries out."""

    first: int | None = None
    """First step. If absent, Convoy chooses one."""
    count: int = 0
    ranks: list[int] = Field(default_factory=list)
    """Ranks that record; empty for all."""
    max_mebibytes: int = 0


class TraceRecord(Bookkeeping):
    """The recordings that the operator has started."""

    request: str = ""
    """Digest of the newest request of the spec that was handled."""
    order: RequestedTrace = Field(default_factory=RequestedTrace)
    """Request of the newest recording. It outlives a later spec that is invalid."""
    recordings: int = 0
    """Number of the newest recording."""
    attempt: int = 0
    """Number of times that the newest recording has chosen other steps in this incarnation."""
    stragglers: int = 0
    """Number of recordings that stragglers have caused."""
    incident: str = ""
    """The newest recorded straggler."""
    passed_at: datetime | None = None
    """Time since which all ranks are past the last recorded step."""


def file_name(recording: int, rank: int) -> str:
    """Return the name of a rank's file in the folder `traces` of the job in its store."""
    return f"trace-{recording}.{rank}.et"
