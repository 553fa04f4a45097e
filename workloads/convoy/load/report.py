"""The report of a load: counts by outcome and cause, and percentiles of the latency. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from convoy.load.outcome import Kind, Outcome

PERCENTILES = (50, 95, 99)
MAX_FAILURES = 1_000
"""Maximum number of requests that `failures` lists. `causes` counts all of them."""


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` percent of the sorted values do not exceed; None
    without values.
    """
    if not values:
        return None
    return values[max(0, math.ceil(share / 100 * len(values)) - 1)]


def report(outcomes: Iterable[Outcome], seconds: float) -> dict[str, Any]:
    """Return the report as a JSON object. `seconds`: duration of the load. Latencies are in milliseconds,
    from the scheduled arrival, and only of complete responses.
    """
    every = list(outcomes)
    counts = Counter(one.kind for one in every)
    complete = [one for one in every if one.kind is Kind.OK]
    return {
        "scheduled": len(every),
        **{kind.value: counts[kind] for kind in Kind},
        "causes": _causes(every),
        "failures": _failures(every),
        "seconds": round(seconds, 3),
        "okPerSecond": round(counts[Kind.OK] / seconds, 3) if seconds else 0.0,
        "eventsPerSecond": round(sum(one.events for one in complete) / seconds, 3) if seconds else 0.0,
        "firstTokenMs": _summary(one.first for one in complete if one.events),
        "totalMs": _summary(one.total for one in complete),
        "clientDelayMs": _summary(one.delay for one in every if one.kind is not Kind.UNSENT),
    }


def _causes(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the causes of all outcomes that are not OK, the most frequent first."""
    found: dict[tuple[Kind, str], list[Outcome]] = {}
    for one in outcomes:
        if one.kind is not Kind.OK:
            found.setdefault((one.kind, one.cause), []).append(one)
    rows = [
        {
            "outcome": kind.value,
            "cause": cause,
            "count": len(those),
            "firstAtSeconds": round(min(one.scheduled for one in those), 3),
            "lastAtSeconds": round(max(one.scheduled for one in those), 3),
            "message": next((one.message for one in those if one.message), ""),
        }
        for (kind, cause), those in found.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["count"])), str(row["cause"])))


def _failures(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the last outcomes that are not OK, in the order of their scheduled times."""
    found = sorted((one for one in outcomes if one.kind is not Kind.OK), key=lambda one: one.scheduled)
    return [
        {"atSeconds": round(one.scheduled, 3), "outcome": one.kind.value, "cause": one.cause}
        for one in found[-MAX_FAILURES:]
    ]


def _summary(values: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    found = {f"p{share}": _milliseconds(percentile(ordered, share)) for share in PERCENTILES}
    return {**found, "max": _milliseconds(ordered[-1] if ordered else None)}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


def lines(found: dict[str, Any]) -> list[str]:
    """Return the report as lines of text."""
    counts = ", ".join(f"{found[kind.value]} {kind.value}" for kind in Kind if found[kind.value])
    rows = [f"{found['scheduled']} requests in {found['seconds']:g} s: {counts or 'none'}"]
    for name, label in (
        ("firstTokenMs", "first token"),
        ("totalMs", "whole response"),
        ("clientDelayMs", "client's delay"),
    ):
        values = [f"{key} {value:g} ms" for key, value in found[name].items() if value is not None]
        if values:
            rows.append(f"{label + ':':<16}{', '.join(values)}")
    rows += [
        f"{one['outcome']}: {one['count']} x {one['cause']}, from {one['firstAtSeconds']:g} s to "
        f"{one['lastAtSeconds']:g} s" + (f": {one['message']}" if one["message"] else "")
        for one in found["causes"]
    ]
    return rows
