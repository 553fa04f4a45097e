"""Reads the outcomes of a run from its job. A value that is absent, or no number, is a failure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_crds.experiment_plan import Outcome
from convoy_crds.experiment_status import MAX_VALUE, Figure, RunFailure
from convoy_crds.field_paths import value_at
from convoy_crds.reasons.reason import Reason

MAX_MESSAGE = 256
"""Maximum number of characters of a failure's message."""
MAX_SHOWN = 40
"""Maximum number of characters of a wrong value in a message."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The places of the outcomes after a run."""

    status: Mapping[str, Any]
    """Status of the run's job."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Result that the job's program has left."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Result of the job that sent the requests."""


def missing(outcomes: Sequence[Outcome], readings: Readings) -> Outcome | None:
    """Return the first outcome that has no value after a run that succeeded; None if all have one."""
    return next((one for one in outcomes if _value(one, readings) is None), None)


def figures(outcomes: Sequence[Outcome], label: str, readings: Readings) -> list[Figure]:
    """Return the figures of a run for all outcomes that have a value. `label`: name of the run in results."""
    found = []
    for outcome in outcomes:
        value = _value(outcome, readings)
        if value is not None:
            late = _is_censored(outcome, readings) or None
            found.append(Figure(arm=label, outcome=outcome.name, value=value, censored=late))
    return found


def failure(label: str, reason: Reason, **facts: Any) -> RunFailure:
    """Return the failure of a run."""
    return RunFailure(arm=label, reason=reason.name, message=reason.format(**facts)[:MAX_MESSAGE])


def number(value: Any) -> float | None:
    """Return a value as a number; None if it is none, not finite, or beyond MAX_VALUE."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and abs(found) <= MAX_VALUE else None


def measured(value: Any) -> float | None:
    """Return a measured magnitude with six significant digits; None if it is no number."""
    found = number(value)
    return None if found is None else float(f"{found:.6g}")


def why_missing(outcome: Outcome, readings: Readings) -> str:
    """Return the reason why an outcome has no value."""
    source, raw = outcome.source, _raw(outcome, readings)
    if source.status is not None:
        place = f"status.{source.status} of the job"
    elif source.load is not None:
        place = f"{source.load!r} in the load's report"
    else:
        place = f"metric {source.metric!r} of the job"
    if _is_absent(raw):
        return f"{place} is absent or NaN"
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return f"{place} is not between -{MAX_VALUE:g} and {MAX_VALUE:g}"
    return f"{place} is no number, but {str(raw)[:MAX_SHOWN]!r}: name a number in spec.outcomes[].source"


def _is_absent(raw: Any) -> bool:
    """Return True if a run has no value at all. A text, or a number that is too large, is a wrong value."""
    return raw is None or (isinstance(raw, float) and not math.isfinite(raw))


def _value(outcome: Outcome, readings: Readings) -> float | None:
    raw = _raw(outcome, readings)
    return outcome.censored_at if _is_absent(raw) else number(raw)


def _is_censored(outcome: Outcome, readings: Readings) -> bool:
    """Return True if a value is a bound of the real one: the run has none, or says so itself."""
    said = outcome.source.metric in _texts(readings.result.get("censored"))
    return said or number(_raw(outcome, readings)) is None


def _raw(outcome: Outcome, readings: Readings) -> Any:
    source = outcome.source
    if source.status is not None:
        found = value_at(readings.status, source.status)
        return source.absent_as if found is None else found
    if source.load is not None:
        return readings.load.get(source.load)
    name = source.metric or ""
    simulated = readings.result.get("figures")
    if isinstance(simulated, Mapping):
        return simulated.get(name)
    if name in readings.result:
        return readings.result[name]
    reported = value_at(readings.status, "progress.metrics")
    rows = reported if isinstance(reported, list) else []
    return next(
        (one.get("value") for one in rows if isinstance(one, Mapping) and one.get("name") == name), None
    )


def _texts(value: Any) -> Collection[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else ()
