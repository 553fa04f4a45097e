"""The messages that a pod's launcher and ranks send, and their parsers. Their frames are untrusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, flag, number, show, text, whole
from convoy_crds.advice import MAX_FOLDERS
from convoy_crds.job_result import MAX_RESULT_BYTES
from convoy_crds.metric_names import MAX_METRICS, is_metric_name

MAX_INCARNATION = 2**31
"""Maximum number of an incarnation. It is far above any real number, and so small that sums do not
overflow.
"""
MAX_RANK = 2**20
MAX_STEP = 2**53
"""Maximum number of a step. JSON readers with double precision represent all whole numbers up to this one
exactly.
"""
STDERR_BYTES = 2048
"""Maximum bytes of stderr output in a report. The report contains the last bytes that the rank wrote
(hub.proto RankReport.stderr_tail).
"""
RESULT_BYTES = MAX_RESULT_BYTES + 1
"""Maximum bytes of a result that the agent forwards. The operator refuses a result of this size."""
MAX_PATH = 256
"""Maximum number of characters of a data folder's path; the rest is cut off."""
MAX_VERSION = 64
"""Maximum number of characters of a version; the rest is cut off."""
RANK_STATES = ("STARTING", "RUNNING", "EXITED")


@dataclass(frozen=True, slots=True)
class LauncherHello:
    """First frame of the launcher's connection. `incarnation` is the incarnation of the launcher's ranks; 0
    before the first assignment.
    """

    incarnation: int
    pid: int
    python: str


@dataclass(frozen=True, slots=True)
class RankHello:
    """First frame of a rank's connection for progress and telemetry."""

    incarnation: int
    rank: int


@dataclass(frozen=True, slots=True)
class MemoryHello(RankHello):
    """First frame of a rank's connection for checkpoints in memory."""


@dataclass(frozen=True, slots=True)
class TraceHello(RankHello):
    """First frame of the connection by which a rank sends its trace."""


@dataclass(frozen=True, slots=True)
class PortPicked:
    """The launcher of slot 0 reports a free TCP port for the rendezvous of an incarnation."""

    incarnation: int
    port: int


@dataclass(frozen=True, slots=True)
class RankUpdate:
    """The launcher reports that the state of a rank's process changed. A time is Unix milliseconds, or 0 if
    it is unknown.
    """

    incarnation: int
    rank: int
    state: str
    exit_code: int = 0
    signal: int = 0
    oom: bool = False
    hung: bool = False
    command_not_found: bool = False
    stderr: str = ""
    started_ms: int = 0
    """Unix milliseconds when the rank's process started."""
    ended_ms: int = 0
    first_step_ms: int = 0
    """Unix milliseconds when the rank's first step in this incarnation ended."""
    step: int = 0
    """For an EXITED rank: the last step that the rank completed in this incarnation."""
    step_ms: int = 0
    """For an EXITED rank: Unix milliseconds when the step `step` ended."""
    checkpoint_ms: int = 0
    """For an EXITED rank: total milliseconds for which saves blocked the rank's steps."""
    finished_ms: int = 0
    """Unix milliseconds when the rank's main program or its loop over `job.steps` ended; 0 while the rank
    makes steps.
    """
    termination_requested: bool = False
    """True if the rank's pod or launcher received a termination request before the rank ended."""
    result: str = ""
    """The job's result as its program wrote it, cut after `RESULT_BYTES`; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The newest value of a metric that the rank's program reports."""

    name: str
    value: float | None
    """The value; None if it is NaN or infinite."""
    step: int
    """The step at which the program reported the value."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A rank's progress in its incarnation. `time_ms` is the Unix time of the report in milliseconds, by
    the pod's clock.
    """

    step: int
    total_steps: int = 0
    samples_per_second: float = 0.0
    loss: float | None = None
    metrics: tuple[Metric, ...] = ()
    """The program's own metrics. They have distinct names, and there are at most `MAX_METRICS`."""
    time_ms: int = 0
    first_step_ms: int = 0
    checkpoint_ms: int = 0
    """Total milliseconds for which saves blocked the steps of this incarnation."""
    save_ms: int = 0
    """Milliseconds for which the newest save blocked the steps; 0 before the first save."""
    copy_ms: int = 0
    """Milliseconds from the start of a save until all copies of its shards existed on other nodes, for the
    newest save that has all its copies. 0 before the first such save.
    """
    restore_ms: int = 0
    """Milliseconds that the rank needed to read the checkpoint from which this incarnation resumed; 0 if it
    read no checkpoint.
    """
    diverged: bool = False
    """True if the loss is NaN or infinite."""
    facts: RunFacts | None = None
    """Facts about the pod; None for all ranks but its first, and before it has measured them."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The files of a data volume, as far as the rank counted them."""

    path: str
    files: int
    median_bytes: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a pod that its first rank measures. Times are in milliseconds."""

    folders: tuple[DataFolder, ...] = ()
    ms: int = 0
    """Length of the measurement; 0 before."""
    cpu_ms: int = 0
    """Processor time of the rank's container in this time."""
    accelerator_ms: int = 0
    """Time in which an average accelerator was busy."""
    accelerators: int = 0
    """Number of accelerators that were measured."""
    python: str = ""
    """Version of Python that runs the rank."""
    torch: str = ""
    """Version of torch; empty if the program has not loaded it."""


FromLauncher = PortPicked | RankUpdate


def parse_hello(frame: Mapping[str, Any]) -> LauncherHello | RankHello:
    """Parse the first frame of a connection. Raises MessageError if the frame is not a valid hello."""
    if frame["type"] != "hello":
        raise MessageError(f"type: {show(frame['type'])} instead of a hello")
    role = frame.get("role")
    incarnation = whole(frame, "incarnation", MAX_INCARNATION)
    if role == "launcher":
        return LauncherHello(incarnation, whole(frame, "pid", 2**32, 0), text(frame, "python", 64))
    if role == "rank":
        return RankHello(incarnation, whole(frame, "rank", MAX_RANK))
    if role == "memory":
        return MemoryHello(incarnation, whole(frame, "rank", MAX_RANK))
    if role == "trace":
        return TraceHello(incarnation, whole(frame, "rank", MAX_RANK))
    raise MessageError(f"role: {show(role)} is not launcher, rank, memory or trace")


def parse_from_launcher(frame: Mapping[str, Any]) -> FromLauncher | None:
    """Parse a frame that the launcher sends after its hello; None if the type is unknown. Raises
    MessageError for an invalid field.
    """
    parser = _LAUNCHER.get(frame["type"])
    return parser(frame) if parser else None


def parse_progress(frame: Mapping[str, Any]) -> Progress:
    """Parse a rank's `progress` frame. Raises MessageError for an invalid field."""
    return Progress(
        step=whole(frame, "step", MAX_STEP),
        total_steps=whole(frame, "totalSteps", MAX_STEP, 0),
        samples_per_second=number(frame, "samplesPerSecond") or 0.0,
        loss=number(frame, "loss"),
        metrics=_metrics(frame),
        time_ms=whole(frame, "timeMs", MAX_STEP, 0),
        first_step_ms=whole(frame, "firstStepMs", MAX_STEP, 0),
        checkpoint_ms=whole(frame, "checkpointMs", MAX_STEP, 0),
        save_ms=whole(frame, "saveMs", MAX_STEP, 0),
        copy_ms=whole(frame, "copyMs", MAX_STEP, 0),
        restore_ms=whole(frame, "restoreMs", MAX_STEP, 0),
        diverged=flag(frame, "diverged"),
        facts=_facts(frame),
    )


def _facts(frame: Mapping[str, Any]) -> RunFacts | None:
    found = frame.get("facts")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise MessageError(f"facts: {show(found)} is not an object")
    try:
        return RunFacts(
            _folders(found),
            ms=whole(found, "ms", MAX_STEP, 0),
            cpu_ms=whole(found, "cpuMs", MAX_STEP, 0),
            accelerator_ms=whole(found, "acceleratorMs", MAX_STEP, 0),
            accelerators=whole(found, "accelerators", 2**16, 0),
            python=text(found, "python", MAX_VERSION),
            torch=text(found, "torch", MAX_VERSION),
        )
    except MessageError as error:
        raise MessageError(f"facts.{error}") from error


def _folders(facts: Mapping[str, Any]) -> tuple[DataFolder, ...]:
    found = facts.get("folders", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise MessageError(f"folders: {show(found)} is not a list of objects")
    if len(found) > MAX_FOLDERS:
        raise MessageError(f"folders: {len(found)} folders, the maximum is {MAX_FOLDERS}")
    return tuple(
        DataFolder(
            text(one, "path", MAX_PATH), whole(one, "files", MAX_STEP), whole(one, "medianBytes", MAX_STEP)
        )
        for one in found
    )


def _metrics(frame: Mapping[str, Any]) -> tuple[Metric, ...]:
    found = frame.get("metrics")
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise MessageError(f"metrics: {show(found)} is not an object")
    if len(found) > MAX_METRICS:
        raise MessageError(f"metrics: {len(found)} names, the maximum is {MAX_METRICS}")
    return tuple(_metric(name, one) for name, one in found.items())


def _metric(name: str, found: object) -> Metric:
    if not is_metric_name(name):
        raise MessageError(f"metrics: {show(name)} is not a valid metric name")
    if not isinstance(found, dict):
        raise MessageError(f"metrics.{name}: {show(found)} is not an object")
    try:
        return Metric(name, number(found, "value"), whole(found, "step", MAX_STEP))
    except MessageError as error:
        raise MessageError(f"metrics.{name}.{error}") from error


def _port_picked(frame: Mapping[str, Any]) -> PortPicked:
    port = whole(frame, "port", 65535)
    if not port:
        raise MessageError("port: 0 is not a valid port")
    return PortPicked(whole(frame, "incarnation", MAX_INCARNATION), port)


def _rank_update(frame: Mapping[str, Any]) -> RankUpdate:
    state = frame.get("state")
    if state not in RANK_STATES:
        raise MessageError(f"state: {show(state)} is not one of {', '.join(RANK_STATES)}")
    tail = text(frame, "stderr", None).encode(errors="replace")[-STDERR_BYTES:]
    result = text(frame, "result", None).encode(errors="replace")[:RESULT_BYTES]
    return RankUpdate(
        incarnation=whole(frame, "incarnation", MAX_INCARNATION),
        rank=whole(frame, "rank", MAX_RANK),
        state=state,
        exit_code=whole(frame, "exitCode", 2**31 - 1, 0),
        signal=whole(frame, "signal", 128, 0),
        oom=flag(frame, "oom"),
        hung=flag(frame, "hung"),
        command_not_found=flag(frame, "commandNotFound"),
        stderr=tail.decode(errors="ignore"),
        started_ms=whole(frame, "startedMs", MAX_STEP, 0),
        ended_ms=whole(frame, "endedMs", MAX_STEP, 0),
        first_step_ms=whole(frame, "firstStepMs", MAX_STEP, 0),
        step=whole(frame, "step", MAX_STEP, 0),
        step_ms=whole(frame, "stepMs", MAX_STEP, 0),
        checkpoint_ms=whole(frame, "checkpointMs", MAX_STEP, 0),
        finished_ms=whole(frame, "finishedMs", MAX_STEP, 0),
        termination_requested=flag(frame, "terminationRequested"),
        result=result.decode(errors="replace"),
    )


_LAUNCHER: dict[str, Callable[[Mapping[str, Any]], FromLauncher]] = {
    "portPicked": _port_picked,
    "rank": _rank_update,
}
