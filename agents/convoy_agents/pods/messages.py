"""What a pod may say, read from frames as from a stranger: every field is checked, nothing is trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_INCARNATION = 2**31
"""Far beyond any real count, and small enough that no sum downstream overflows."""
MAX_RANK = 2**20
MAX_STEP = 2**53
"""The largest step that JSON readers, which may use doubles, still tell apart from its neighbour."""
STDERR_BYTES = 2048
"""Of a rank's last output that is reported (hub.proto RankReport.stderr_tail)."""
RANK_STATES = ("STARTING", "RUNNING", "EXITED")


class MessageError(ValueError):
    """A frame does not say what its type promises; names the field."""


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


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a rank stands; `time_ms` is Unix time in milliseconds by the pod's clock."""

    step: int
    total_steps: int = 0
    samples_per_second: float = 0.0
    loss: float | None = None
    held_out_loss: float | None = None
    time_ms: int = 0
    first_step_ms: int = 0
    checkpoint_ms: int = 0
    """For which saving has held up the steps of this incarnation."""


@dataclass(frozen=True, slots=True)
class RankPrepared:
    """This rank's part of the generation is durable; `parent` is the one it was restored from."""

    incarnation: int
    step: int
    parent: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The COMMIT record of the generation is durable."""

    incarnation: int
    step: int


FromLauncher = PortPicked | RankUpdate
FromRank = Progress | RankPrepared | Recorded


def parse_hello(frame: Mapping[str, Any]) -> LauncherHello | RankHello:
    """The first frame of a connection. MessageError for any other."""
    if frame["type"] != "hello":
        raise MessageError(f"type: {_show(frame['type'])} before hello")
    role = frame.get("role")
    incarnation = _whole(frame, "incarnation", MAX_INCARNATION)
    if role == "launcher":
        return LauncherHello(incarnation, _whole(frame, "pid", 2**32, 0), _text(frame, "python", 64))
    if role == "rank":
        return RankHello(incarnation, _whole(frame, "rank", MAX_RANK))
    raise MessageError(f"role: {_show(role)} is neither launcher nor rank")


def parse_from_launcher(frame: Mapping[str, Any]) -> FromLauncher | None:
    """A later frame of the launcher; None for an unknown type. MessageError names a bad field."""
    parser = _LAUNCHER.get(frame["type"])
    return parser(frame) if parser else None


def parse_from_rank(frame: Mapping[str, Any]) -> FromRank | None:
    """A later frame of a rank; None for an unknown type. MessageError names a bad field."""
    parser = _RANK.get(frame["type"])
    return parser(frame) if parser else None


def _port_picked(frame: Mapping[str, Any]) -> PortPicked:
    port = _whole(frame, "port", 65535)
    if not port:
        raise MessageError("port: 0 is no port")
    return PortPicked(_whole(frame, "incarnation", MAX_INCARNATION), port)


def _rank_update(frame: Mapping[str, Any]) -> RankUpdate:
    state = frame.get("state")
    if state not in RANK_STATES:
        raise MessageError(f"state: {_show(state)} is none of {', '.join(RANK_STATES)}")
    tail = _text(frame, "stderr", None).encode(errors="replace")[-STDERR_BYTES:]
    return RankUpdate(
        incarnation=_whole(frame, "incarnation", MAX_INCARNATION),
        rank=_whole(frame, "rank", MAX_RANK),
        state=state,
        exit_code=_whole(frame, "exitCode", 2**31 - 1, 0),
        signal=_whole(frame, "signal", 128, 0),
        oom=_flag(frame, "oom"),
        hung=_flag(frame, "hung"),
        command_not_found=_flag(frame, "commandNotFound"),
        stderr=tail.decode(errors="ignore"),
        started_ms=_whole(frame, "startedMs", MAX_STEP, 0),
        ended_ms=_whole(frame, "endedMs", MAX_STEP, 0),
        first_step_ms=_whole(frame, "firstStepMs", MAX_STEP, 0),
        step=_whole(frame, "step", MAX_STEP, 0),
        step_ms=_whole(frame, "stepMs", MAX_STEP, 0),
        checkpoint_ms=_whole(frame, "checkpointMs", MAX_STEP, 0),
    )


def _progress(frame: Mapping[str, Any]) -> Progress:
    return Progress(
        step=_whole(frame, "step", MAX_STEP),
        total_steps=_whole(frame, "totalSteps", MAX_STEP, 0),
        samples_per_second=_number(frame, "samplesPerSecond") or 0.0,
        loss=_number(frame, "loss"),
        held_out_loss=_number(frame, "heldOutLoss"),
        time_ms=_whole(frame, "timeMs", MAX_STEP, 0),
        first_step_ms=_whole(frame, "firstStepMs", MAX_STEP, 0),
        checkpoint_ms=_whole(frame, "checkpointMs", MAX_STEP, 0),
    )


def _prepared(frame: Mapping[str, Any]) -> RankPrepared:
    parent = frame.get("parent")
    if parent is not None:
        if not isinstance(parent, list) or len(parent) != 2:
            raise MessageError("parent: is neither null nor [incarnation, step]")
        pair = {"parent[0]": parent[0], "parent[1]": parent[1]}
        parent = (_whole(pair, "parent[0]", MAX_INCARNATION), _whole(pair, "parent[1]", MAX_STEP))
        if not parent[0]:
            raise MessageError("parent[0]: incarnations start at 1")
    return RankPrepared(
        _whole(frame, "incarnation", MAX_INCARNATION), _whole(frame, "step", MAX_STEP), parent
    )


def _recorded(frame: Mapping[str, Any]) -> Recorded:
    return Recorded(_whole(frame, "incarnation", MAX_INCARNATION), _whole(frame, "step", MAX_STEP))


_LAUNCHER: dict[str, Callable[[Mapping[str, Any]], FromLauncher]] = {
    "portPicked": _port_picked,
    "rank": _rank_update,
}
_RANK: dict[str, Callable[[Mapping[str, Any]], FromRank]] = {
    "progress": _progress,
    "prepared": _prepared,
    "recorded": _recorded,
}


def _whole(frame: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = frame.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise MessageError(f"{name}: {_show(value)} is no whole number from 0 to {most}")
    return value


def _number(frame: Mapping[str, Any], name: str) -> float | None:
    value = frame.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{name}: {_show(value)} is no number")
    try:
        number = float(value)
    except OverflowError as error:
        raise MessageError(f"{name}: too large") from error
    if not math.isfinite(number):
        raise MessageError(f"{name}: not finite")
    return number


def _flag(frame: Mapping[str, Any], name: str) -> bool:
    value = frame.get(name, False)
    if not isinstance(value, bool):
        raise MessageError(f"{name}: {_show(value)} is neither true nor false")
    return value


def _text(frame: Mapping[str, Any], name: str, most: int | None) -> str:
    value = frame.get(name, "")
    if not isinstance(value, str):
        raise MessageError(f"{name}: {_show(value)} is no text")
    return value[:most]


def _show(value: object) -> str:
    """At most 40 characters of a stranger's value, quoted."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge number"
    return ascii(value if not isinstance(value, str) else value[:40])[:40]
