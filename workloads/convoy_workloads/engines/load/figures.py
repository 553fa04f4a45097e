"""The result of a load: its figures, each with a name of its own. Pure."""

from __future__ import annotations

from typing import Any

from convoy.load.outcome import Kind
from convoy.load.report import report
from convoy.load.tally import Tally
from convoy_workloads.engines.load.params import Params
from convoy_workloads.engines.load.schedule import expected_requests, schedule

_LATENCIES = {"totalMs": "", "firstTokenMs": "firstToken", "clientDelayMs": "clientDelay"}
"""Prefix of the figures for each group of latencies in the report."""


def figures(params: Params, tally: Tally, seconds: float) -> dict[str, float]:
    """Return the figures of a load that took `seconds`. Latencies without any response are left out,
    and the share of errors without any request.
    """
    found = report(tally, seconds)
    flat: dict[str, float] = {
        name: found[name] for name in ("scheduled", *Kind, "seconds", "okPerSecond", "eventsPerSecond")
    }
    if tally.scheduled:
        flat["errorPercent"] = round(100 * (1 - tally.counts[Kind.OK] / tally.scheduled), 4)
    for group, prefix in _LATENCIES.items():
        for share, value in found[group].items():
            if value is not None:
                flat[_name(prefix, share)] = value
    if (achieved := achieved_factor(params, tally)) is not None:
        flat["achieved"] = achieved
    return flat


def _name(prefix: str, share: str) -> str:
    """Return the name of a latency, such as `p99Ms` or `firstTokenP999Ms`."""
    name = f"{share.replace('.', '')}Ms"
    return prefix + name[0].upper() + name[1:] if prefix else name


def achieved_factor(params: Params, tally: Tally) -> float | None:
    """Return the factor of the rate that the perturbation achieved: requests that were sent while it acted,
    divided by those that the plain load has on average. Return None without a perturbation, or if the load
    has no request at that time.
    """
    shift = params.perturbation
    if shift is None or not tally.scheduled:
        return None
    expected = expected_requests(params, shift.start, shift.end)
    if not expected:
        return None
    scheduled = sum(shift.active(at) for at in schedule(params)())
    sent = 1 - tally.counts[Kind.UNSENT] / tally.scheduled
    return round(sent * scheduled / expected, 4)


def summary(found: dict[str, Any]) -> str:
    """Return a line for the log."""
    counts = ", ".join(f"{found[kind]} {kind.value}" for kind in Kind if found[kind])
    latency = f"; p50 {found['p50Ms']:g} ms, p99 {found['p99Ms']:g} ms" if "p99Ms" in found else ""
    return f"{found['scheduled']} requests in {found['seconds']:g} s: {counts or 'none'}{latency}"
