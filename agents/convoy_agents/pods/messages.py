"""What a pod may say, read from frames as from a stranger: every field is checked, nothing is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, flag, number, show, text, whole
from convoy_crds.metric_names import MAX_METRICS, is_metric_name

MAX_INCARNATION = 2**31
"""Far beyond any real count, and small enough that no sum downstream overflows."""
MAX_RANK = 2**20
MAX_STEP = 2**53
"""The largest step that JSON readers, which may use doubles, still tell apart from its neighbour."""
STDERR_BYTES = 2048
"""Of a rank's last output that is reported (hub.proto RankReport.stderr_tail)."""
RANK_STATES = ("STARTING", "RUNNING", "EXITED")


@dataclass(frozen=True, slots=True)
class LauncherHello:
    """First frame of the launcher; `incarnation` is what its ranks run in, 0 before the first."""

    incarnation: int
    pid: int
    python: str


@dataclass(frozen=True, slots=True)
class RankHello:
    """First frame of a rank's connection."""

    incarnation: int
    rank: int


@dataclass(frozen=True, slots=True)
class MemoryHello(RankHello):
    """First frame of the connection on which a rank is handed its memory."""


@dataclass(frozen=True, slots=True)
class PortPicked:
    """The launcher of slot 0 found this TCP port free."""

    incarnation: int
    port: int


@dataclass(frozen=True, slots=True)
class RankUpdate:
    """A process of the pod changed state."""

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
    """When its process began; Unix milliseconds, 0 for what is not known. So for the other times."""
    ended_ms: int = 0
    first_step_ms: int = 0
    """When its first step of this incarnation ended."""
    step: int = 0
    """Of an EXITED rank: the last step that it ended in this incarnation."""
    step_ms: int = 0
    """When that step ended."""
    checkpoint_ms: int = 0
    """Of an EXITED rank: for which saving had held up its steps."""
    finished_ms: int = 0
    """When its main program, or its loop over `job.steps`, was over; 0 while it makes steps."""
    termination_requested: bool = False
    """True for a rank that was told to leave before it ended."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The newest value of a figure that the rank's program measures itself."""

    name: str
    value: float | None
    """None for NaN and infinity."""
    step: int
    """The step at which the program reported the value."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a rank stands; `time_ms` is Unix time in milliseconds by the pod's clock."""

    step: int
    total_steps: int = 0
    samples_per_second: float = 0.0
    loss: float | None = None
    metrics: tuple[Metric, ...] = ()
    """At most `MAX_METRICS`, each name once."""
    time_ms: int = 0
    first_step_ms: int = 0
    checkpoint_ms: int = 0
    """For which saving has held up the steps of this incarnation."""
    save_ms: int = 0
    """For which its newest save did; 0 before the first."""
    copy_ms: int = 0
    """Until the newest save that has its copies had them; 0 before the first."""
    restore_ms: int = 0
    """For which it read what this incarnation goes on from; 0 when it read nothing."""
    diverged: bool = False
    """Its loss is no number."""


FromLauncher = PortPicked | RankUpdate


def parse_hello(frame: Mapping[str, Any]) -> LauncherHello | RankHello | MemoryHello:
    """The first frame of a connection. MessageError for any other."""
    if frame["type"] != "hello":
        raise MessageError(f"type: {show(frame['type'])} before hello")
    role = frame.get("role")
    incarnation = whole(frame, "incarnation", MAX_INCARNATION)
    if role == "launcher":
        return LauncherHello(incarnation, whole(frame, "pid", 2**32, 0), text(frame, "python", 64))
    if role == "rank":
        return RankHello(incarnation, whole(frame, "rank", MAX_RANK))
    if role == "memory":
        return MemoryHello(incarnation, whole(frame, "rank", MAX_RANK))
    raise MessageError(f"role: {show(role)} is none of launcher, rank, memory")


def parse_from_launcher(frame: Mapping[str, Any]) -> FromLauncher | None:
    """A later frame of the launcher; None for an unknown type. MessageError names a bad field."""
    parser = _LAUNCHER.get(frame["type"])
    return parser(frame) if parser else None


def parse_progress(frame: Mapping[str, Any]) -> Progress:
    """A rank's `progress`. MessageError names a bad field."""
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
    )


def _metrics(frame: Mapping[str, Any]) -> tuple[Metric, ...]:
    found = frame.get("metrics")
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise MessageError(f"metrics: {show(found)} is no object")
    if len(found) > MAX_METRICS:
        raise MessageError(f"metrics: {len(found)} names, at most {MAX_METRICS} are allowed")
    return tuple(_metric(name, one) for name, one in found.items())


def _metric(name: str, found: object) -> Metric:
    if not is_metric_name(name):
        raise MessageError(f"metrics: {show(name)} is no metric's name")
    if not isinstance(found, dict):
        raise MessageError(f"metrics.{name}: {show(found)} is no object")
    try:
        return Metric(name, number(found, "value"), whole(found, "step", MAX_STEP))
    except MessageError as error:
        raise MessageError(f"metrics.{name}.{error}") from error


def _port_picked(frame: Mapping[str, Any]) -> PortPicked:
    port = whole(frame, "port", 65535)
    if not port:
        raise MessageError("port: 0 is no port")
    return PortPicked(whole(frame, "incarnation", MAX_INCARNATION), port)


def _rank_update(frame: Mapping[str, Any]) -> RankUpdate:
    state = frame.get("state")
    if state not in RANK_STATES:
        raise MessageError(f"state: {show(state)} is none of {', '.join(RANK_STATES)}")
    tail = text(frame, "stderr", None).encode(errors="replace")[-STDERR_BYTES:]
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
    )


_LAUNCHER: dict[str, Callable[[Mapping[str, Any]], FromLauncher]] = {
    "portPicked": _port_picked,
    "rank": _rank_update,
}
