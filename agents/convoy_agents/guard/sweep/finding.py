"""Converts the exit and the output of a probe's child process to a finding. The output is untrusted."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from convoy_agents.guard.sweep.probe import MAX_SAMPLES
from convoy_agents.guard.sweep.process import MAX_OUTPUT, ChildExit, Stop

MAX_DIGESTS = 1024
MAX_FACTS = 512
_MAX_TEXT = 512


class Outcome(StrEnum):
    """The outcome of one run of a probe."""

    MEASURED = "Measured"
    NOT_AVAILABLE = "NotAvailable"
    """The node lacks the hardware or software that the probe measures."""
    FAILED = "Failed"
    """The probe reported a failure."""
    TIMED_OUT = "TimedOut"
    """The probe was killed at its deadline, or the sweep's deadline passed before the probe started."""
    HUNG = "Hung"
    """The probe's process survived SIGKILL. It is stuck in the kernel, probably in a driver."""
    CRASHED = "Crashed"
    """A signal killed the probe's process."""
    OUT_OF_MEMORY = "OutOfMemory"
    GARBAGE = "Garbage"
    """The probe's output is not a valid result."""
    NO_OUTPUT = "NoOutput"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one run of a probe. Depending on the probe, the run produces either samples, digests or
    facts, and the fields for the other two stay empty. All three are empty if the run measured nothing.
    """

    outcome: Outcome
    message: str = ""
    samples: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def from_exit(ended: ChildExit) -> Finding:
    """Return the finding for the exit of a probe's child process."""
    if ended.code is None:
        return Finding(Outcome.HUNG, "the probe is stuck in the kernel and survived SIGKILL")
    if ended.stop is Stop.FLOOD:
        return Finding(Outcome.GARBAGE, f"the probe wrote more than {MAX_OUTPUT} bytes")
    if ended.stop is Stop.DEADLINE:
        return Finding(Outcome.TIMED_OUT, "the probe was killed at its deadline")
    if ended.code == -signal.SIGKILL and ended.oom:
        return Finding(Outcome.OUT_OF_MEMORY, "the kernel's out-of-memory killer killed the probe")
    if ended.code < 0:
        return Finding(
            Outcome.CRASHED, _with_stderr(f"the probe was killed by {_signal(-ended.code)}", ended.stderr)
        )
    if ended.code > 0:
        return Finding(Outcome.FAILED, _with_stderr(f"the probe exited with code {ended.code}", ended.stderr))
    if not ended.output.strip():
        return Finding(Outcome.NO_OUTPUT, "the probe exited with code 0 and wrote no result")
    try:
        return _parse(ended.output)
    except (ValueError, OverflowError, RecursionError) as error:
        return Finding(Outcome.GARBAGE, f"the probe's output is not a valid result: {error}"[:_MAX_TEXT])


def _parse(output: bytes) -> Finding:
    parsed = json.loads(output)
    if not isinstance(parsed, dict):
        raise ValueError("no object")
    outcome = Outcome(_text(parsed.get("outcome")))
    if outcome not in {
        Outcome.MEASURED, Outcome.NOT_AVAILABLE, Outcome.FAILED, Outcome.OUT_OF_MEMORY,
    }:  # fmt: skip
        raise ValueError(f"a child process cannot report the outcome {outcome}")
    finding = Finding(
        outcome,
        _text(parsed.get("message", "")),
        tuple(map(_sample, _many(parsed, "samples", list, MAX_SAMPLES))),
        tuple(map(_text, _many(parsed, "digests", list, MAX_DIGESTS))),
        {_text(name): _text(value) for name, value in _many(parsed, "facts", dict, MAX_FACTS).items()},
    )
    something = bool(finding.samples or finding.digests or finding.facts)
    if something is not (outcome is Outcome.MEASURED):
        raise ValueError(f"outcome {outcome} with{'' if something else 'out'} measurements")
    return finding


def _many(parsed: Mapping[str, Any], name: str, kind: type, maximum: int) -> Any:
    value = parsed.get(name, kind())
    if not isinstance(value, kind) or len(value) > maximum:  # type: ignore[arg-type]  # list and dict have a length
        raise ValueError(f"{name}: not a {kind.__name__} of at most {maximum} items")
    return value


def _sample(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("samples: not a number")
    if not 0 < value < math.inf:
        raise ValueError("samples: not a finite number above 0")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a value is not a text")
    return value[:_MAX_TEXT]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with_stderr(what: str, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f"{what}: {lines[-1]}"[:_MAX_TEXT] if lines else what
