"""The report of a load: counts by outcome and cause, percentiles of the latency, and curves. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.load.outcome import Kind
from convoy.load.tally import Latencies, Second, Tally

PERCENTILES = (50, 90, 95, 99, 99.9)


def report(tally: Tally, seconds: float) -> dict[str, Any]:
    """Return the report as a JSON object. `seconds`: duration of the load. Latencies are in milliseconds,
    from the scheduled arrival, and only of complete responses.
    """
    return {
        "scheduled": tally.scheduled,
        **{kind.value: tally.counts[kind] for kind in Kind},
        "causes": _causes(tally),
        "failures": [
            {"atSeconds": round(at, 3), "endSeconds": round(end, 3), "outcome": outcome, "cause": cause}
            for at, end, outcome, cause in sorted(tally.failures)
        ],
        "seconds": round(seconds, 3),
        "okPerSecond": round(tally.counts[Kind.OK] / seconds, 3) if seconds else 0.0,
        "eventsPerSecond": round(tally.events / seconds, 3) if seconds else 0.0,
        "firstTokenMs": _summary(tally.first),
        "totalMs": _summary(tally.total),
        "clientDelayMs": _summary(tally.delay),
        "histograms": {
            "firstToken": tally.first.encode().decode(),
            "total": tally.total.encode().decode(),
            "clientDelay": tally.delay.encode().decode(),
        },
    }


def _causes(tally: Tally) -> list[dict[str, Any]]:
    """Return the causes of all outcomes that are not OK, the most frequent first."""
    rows = [
        {
            "outcome": kind.value,
            "cause": cause,
            "count": one.count,
            "firstAtSeconds": round(one.first, 3),
            "lastAtSeconds": round(one.last, 3),
            "message": one.message,
        }
        for (kind, cause), one in tally.causes.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["count"])), str(row["cause"])))


def _summary(latencies: Latencies) -> dict[str, float | None]:
    found = {f"p{share:g}": latencies.milliseconds(share) for share in PERCENTILES}
    return {**found, "max": latencies.milliseconds(100)}


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


def curves(tally: Tally) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the curves of a load: a title, and the points of each."""

    def of(value: Callable[[Second], float | None]) -> list[tuple[float, float]]:
        points = ((at, value(one)) for at, one in sorted(tally.seconds.items()))
        return [(float(at), found) for at, found in points if found is not None]

    shares = [share / 2 for share in range(2, 200)] if tally.total.count else []
    return [
        ("scheduled requests in each second", of(lambda one: float(one.scheduled))),
        ("complete responses, by the second of their arrival", of(lambda one: float(one.ok))),
        ("mean latency in ms, by the second of the arrival", of(_mean)),
        (
            "latency in ms, by percentile",
            [(share, tally.total.milliseconds(share) or 0.0) for share in shares],
        ),
    ]


def _mean(one: Second) -> float | None:
    return 1000 * one.total / one.ok if one.ok else None
