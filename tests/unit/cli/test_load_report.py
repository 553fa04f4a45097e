"""Tests of the counts, the latencies and the report of `convoy load`."""

from __future__ import annotations

import pickle
import random

import pytest

from convoy.load.outcome import Kind, Outcome
from convoy.load.report import curves, lines, report
from convoy.load.tally import MAX_CAUSES, MAX_FAILURES, OTHER, Latencies, Tally

OUTCOMES = [
    *(Outcome(one, Kind.OK, first=0.001 * one, total=0.01 * one, events=3) for one in range(1, 5)),
    Outcome(9.0, Kind.LOST, "no connection: refused", "x", delay=0.5),
    Outcome(7.0, Kind.LOST, "no connection: refused"),
    Outcome(8.0, Kind.SHED, "status 429", "full"),
    Outcome(8.5, Kind.UNSENT, "1 requests in flight"),
]


def tally_of(outcomes: list[Outcome]) -> Tally:
    found = Tally()
    for one in outcomes:
        found.add(one)
    return found


def test_the_report_counts_every_request_once() -> None:
    found = report(tally_of(OUTCOMES), 2.0)
    assert [found[kind.value] for kind in Kind] == [4, 1, 0, 2, 1]
    assert found["scheduled"] == 8 and found["okPerSecond"] == 2 and found["eventsPerSecond"] == 6
    first = found["firstTokenMs"]
    assert [first[name] for name in ("p50", "p90", "p95", "p99", "p99.9", "max")] == pytest.approx(
        [2, 4, 4, 4, 4, 4], rel=2e-3
    )
    assert found["totalMs"]["p50"] == pytest.approx(20, rel=2e-3)
    assert found["clientDelayMs"]["max"] == pytest.approx(500, rel=2e-3)
    assert [(one["outcome"], one["cause"], one["count"]) for one in found["causes"]] == [
        ("lost", "no connection: refused", 2),
        ("unsent", "1 requests in flight", 1),
        ("shed", "status 429", 1),
    ]
    assert found["causes"][0]["firstAtSeconds"] == 7 and found["causes"][0]["message"] == "x"
    assert [(one["atSeconds"], one["outcome"]) for one in found["failures"]] == [
        (7, "lost"), (8, "shed"), (8.5, "unsent"), (9, "lost"),
    ]  # fmt: skip
    assert lines(found)[0] == "8 requests in 2 s: 4 ok, 1 shed, 2 lost, 1 unsent"
    assert "lost: 2 x no connection: refused, from 7 s to 9 s: x" in lines(found)


def test_tallies_of_workers_make_the_report_of_one() -> None:
    parts = [tally_of(OUTCOMES[part::3]) for part in range(3)]
    whole = Tally()
    for one in parts:
        # Each part comes from another process.
        whole.merge(pickle.loads(pickle.dumps(one)))
    found = report(whole, 2.0)
    assert found == report(tally_of(OUTCOMES), 2.0)
    assert Latencies(found["histograms"]["total"].encode()).count == 4
    assert curves(whole) == curves(tally_of(OUTCOMES))


def test_percentiles_have_an_error_of_at_most_a_thousandth() -> None:
    drawn = random.Random(1)
    values = sorted(drawn.lognormvariate(-4, 2) for _ in range(2000))
    found = Latencies()
    for one in values:
        found.record(one)
    for share in (50, 90, 99, 99.9, 100):
        exact = values[min(len(values) - 1, round(share / 100 * len(values)) - 1)]
        assert found.milliseconds(share) == pytest.approx(1000 * exact, rel=1.1e-3, abs=0.011)


def test_the_range_of_latencies_has_ends() -> None:
    found = Latencies()
    assert found.milliseconds(50) is None
    found.record(-1.0)
    found.record(1e9)
    assert found.milliseconds(1) == 0 and found.milliseconds(100) == pytest.approx(86_400_000, rel=2e-3)


def test_failures_and_causes_have_bounds() -> None:
    found = tally_of([Outcome(at, Kind.FAILED, f"status {at}") for at in range(MAX_CAUSES + 50)])
    assert found.causes[(Kind.FAILED, OTHER)].count == 50
    assert len(found.failures) == MAX_FAILURES and found.failures[-1][0] == MAX_CAUSES + 49
    found.merge(tally_of([Outcome(5000.0, Kind.LOST, "late")]))
    assert len(found.failures) == MAX_FAILURES and found.failures[-1][0] == 5000


def test_curves_have_the_rates_and_the_latencies() -> None:
    outcomes = [Outcome(at, Kind.OK, total=0.1 if at < 1 else 0.3) for at in (0.0, 0.5, 1.5)]
    titles = dict(curves(tally_of([*outcomes, Outcome(1.0, Kind.LOST, "why")])))
    scheduled, complete, mean, percentiles = titles.values()
    assert scheduled == [(0, 2), (1, 2)] and complete == [(0, 2), (1, 1)]
    assert [value for _, value in mean] == pytest.approx([100, 300])
    assert percentiles[0][1] == pytest.approx(100, rel=2e-3) and percentiles[-1][1] == pytest.approx(
        300, rel=2e-3
    )
    assert all(not points for _, points in curves(Tally()))
