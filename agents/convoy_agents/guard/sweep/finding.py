"""From how a child ended to what is parsed of its metric. What a child writes is read as from a stranger."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from convoy_agents.guard.sweep.probe import MOST_SAMPLES
from convoy_agents.guard.sweep.process import MOST_OUTPUT, ChildExit, Stop

MOST_DIGESTS = 1024
MOST_FACTS = 512
_MOST_TEXT = 512


class Outcome(StrEnum):
    """How a probe ended."""

    MEASURED = "Measured"
    NOT_AVAILABLE = "NotAvailable"
    """The node lacks what it measures."""
    FAILED = "Failed"
    """It says itself that it could not."""
    TIMED_OUT = "TimedOut"
    """It was killed at its deadline, or its turn never came."""
    HUNG = "Hung"
    """SIGKILL did not end it: it is stuck in the kernel, a driver most likely."""
    CRASHED = "Crashed"
    """A signal ended it."""
    OUT_OF_MEMORY = "OutOfMemory"
    GARBAGE = "Garbage"
    """What it wrote is no result."""
    NO_OUTPUT = "NoOutput"


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one metric; what is not measured is empty."""

    outcome: Outcome
    message: str = ""
    samples: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def from_exit(ended: ChildExit) -> Finding:
    """What follows from an end."""
    if ended.code is None:
        return Finding(Outcome.HUNG, "SIGKILL does not end it: it is stuck in the kernel")
    if ended.stop is Stop.FLOOD:
        return Finding(Outcome.GARBAGE, f"it wrote more than {MOST_OUTPUT} bytes")
    if ended.stop is Stop.DEADLINE:
        return Finding(Outcome.TIMED_OUT, "killed at its deadline")
    if ended.code == -signal.SIGKILL and ended.oom:
        return Finding(Outcome.OUT_OF_MEMORY, "killed by the kernel for its memory")
    if ended.code < 0:
        return Finding(Outcome.CRASHED, _with_stderr(f"ended by {_signal(-ended.code)}", ended.stderr))
    if ended.code > 0:
        return Finding(Outcome.FAILED, _with_stderr(f"exit code {ended.code}", ended.stderr))
    if not ended.output.strip():
        return Finding(Outcome.NO_OUTPUT, "it ended well and wrote nothing")
    try:
        return _parse(ended.output)
    except (ValueError, OverflowError, RecursionError) as error:
        return Finding(Outcome.GARBAGE, f"what it wrote is no result: {error}"[:_MOST_TEXT])


def _parse(output: bytes) -> Finding:
    parsed = json.loads(output)
    if not isinstance(parsed, dict):
        raise ValueError("no object")
    outcome = Outcome(_text(parsed.get("outcome")))
    if outcome not in {
        Outcome.MEASURED, Outcome.NOT_AVAILABLE, Outcome.FAILED, Outcome.OUT_OF_MEMORY,
    }:  # fmt: skip
        raise ValueError(f"{outcome} is nothing that a child can know")
    finding = Finding(
        outcome,
        _text(parsed.get("message", "")),
        tuple(map(_sample, _many(parsed, "samples", list, MOST_SAMPLES))),
        tuple(map(_text, _many(parsed, "digests", list, MOST_DIGESTS))),
        {_text(name): _text(value) for name, value in _many(parsed, "facts", dict, MOST_FACTS).items()},
    )
    something = bool(finding.samples or finding.digests or finding.facts)
    if something is not (outcome is Outcome.MEASURED):
        raise ValueError(f"{outcome} with{'' if something else 'out'} figures")
    return finding


def _many(parsed: Mapping[str, Any], name: str, kind: type, most: int) -> Any:
    value = parsed.get(name, kind())
    if not isinstance(value, kind) or len(value) > most:  # type: ignore[arg-type]  # list and dict have a length
        raise ValueError(f"{name}: no {kind.__name__} of up to {most}")
    return value


def _sample(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("samples: no number")
    if not 0 < value < math.inf:
        raise ValueError("samples: not above 0, or not finite")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text where one is due")
    return value[:_MOST_TEXT]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with_stderr(what: str, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f"{what}: {lines[-1]}"[:_MOST_TEXT] if lines else what
