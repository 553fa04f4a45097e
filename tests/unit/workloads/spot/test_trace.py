"""Tests of traces of spot nodes, of their files, and of the model of capacity."""

from __future__ import annotations

import pytest

from convoy_workloads.spot.availability import PRESETS
from convoy_workloads.spot.trace import Notices, SpotTrace, from_counts
from convoy_workloads.spot.trace_csv import (
    SHIPPED,
    InvalidTrace,
    TimeUnit,
    parse_counts,
    parse_trace,
    trace_of,
)


def check(trace: SpotTrace) -> None:
    """A node appears only if it is not there, and vanishes only if it is."""
    alive: dict[str, float] = {}
    last = 0.0
    for at, appeared, vanished, notice in trace.changes():
        assert last <= at <= trace.seconds
        assert not set(appeared) & alive.keys()
        assert set(vanished) <= alive.keys()
        assert all(0 <= notice <= at - alive.pop(name) for name in vanished)
        alive |= dict.fromkeys(appeared, at)
        assert len(alive) <= trace.nodes
        last = at


def test_numbers_become_nodes_that_return_under_their_names() -> None:
    trace = parse_trace("time,count\n10,2\n10,3\n20,3\n20,1\n\n40,2\n60,2\n")
    check(trace)
    changes = list(trace.changes())
    assert changes[0] == (0.0, ("spot-0", "spot-1", "spot-2"), (), 0.0)
    assert [(one.at, len(one.appeared), len(one.vanished), one.notice_seconds) for one in changes[1:]] == [
        (10.0, 0, 2, 10.0),
        (30.0, 1, 0, 0.0),
    ]
    assert changes[2].appeared[0] in changes[1].vanished
    assert list(trace.counts()) == [(0.0, 3), (10.0, 1), (30.0, 2)]
    assert trace.seconds == 50.0
    figures = trace.figures()
    assert (figures.losses, figures.largest_drop, figures.any_share) == (2, 2, 1.0)
    assert figures.node_hours == pytest.approx((30 + 20 + 40) / 3600)
    assert figures.availability == pytest.approx(90 / 150)


def test_a_part_of_a_trace_begins_with_the_nodes_that_are_there() -> None:
    trace = from_counts([(0.0, 3), (10.0, 1), (30.0, 4)], 60.0)
    part = trace.window(20.0, 15.0)
    check(part)
    assert list(part.counts()) == [(0.0, 1), (10.0, 4)]
    assert part.seconds == 15.0
    fast = trace.faster(10.0)
    assert list(fast.counts()) == [(0.0, 3), (1.0, 1), (3.0, 4)]
    assert fast.seconds == 6.0


@pytest.mark.parametrize(("share", "with_notice"), [(0.0, 0), (1.0, 40), (0.5, 20)])
def test_a_share_of_the_losses_has_a_notice(share: float, with_notice: int) -> None:
    counts = [(100.0 * number, number % 2) for number in range(82)]
    trace = from_counts(counts, 8200.0, Notices(30.0, share), seed=3)
    leads = [one.notice_seconds for one in trace.changes() if one.vanished]
    assert set(leads) <= {0.0, 30.0}
    assert abs(leads.count(30.0) - with_notice) <= (4 if 0 < share < 1 else 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the trace has no rows"),
        ("time,count\n", "the trace has no rows"),
        ("0,1\n5,1\n4,2\n", "line 3: time 4 is before the time of the row above"),
        ("0,1\n\n5,\n", "line 3: count is missing; a trace must not have gaps"),
        ("0,1\n5,-2\n", "line 2: count '-2' must be a whole number from 0"),
        ("0,1\n5,1.5\n", "line 2: count '1.5' must be"),
        ("0,1\n5,99999\n", "line 2: count '99999' must be"),
        ("x,1\n5,1\n", "line 1: time 'x' must be a number"),
        ("0,1\nnan,1\n", "line 2: time 'nan' must be a number"),
        ("0,1\n5,1,7\n", "line 2: a row must be time,count; this one has 3 values"),
        ("3,1\n3,2\n", "line 2: all rows have the same time"),
        ("0,0\n5,0\n", "no row has a node"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        parse_trace(text)


def test_times_have_a_unit() -> None:
    assert parse_counts("0,1\n0.5,0\n", TimeUnit.HOURS) == [(0.0, 1), (1800.0, 0)]
    assert parse_counts("\ufefftime,count\n0,1\n1,0\n") == [(0.0, 1), (1.0, 0)]


@pytest.mark.parametrize(
    ("name", "nodes", "hours", "losses", "drop"),
    [("g4dn-us-east-1c", 12, 24.5, 85, 10), ("p2-us-east-1", 16, 88.7, 172, 8)],
)
def test_the_shipped_traces_are_usable(name: str, nodes: int, hours: float, losses: int, drop: int) -> None:
    trace = trace_of(SHIPPED[name].counts())
    check(trace)
    figures = trace.figures()
    assert (trace.nodes, figures.losses, figures.largest_drop) == (nodes, losses, drop)
    assert trace.seconds / 3600 == pytest.approx(hours, abs=0.05)


RANGES = {
    "v100-calm": (1, (0.85, 0.92), (0.09, 0.12)),
    "v100-stormy": (1, (0.15, 0.22), (1.25, 1.5)),
    "v100-4-nodes": (4, (0.7, 0.82), (0.06, 0.46)),
    "v100-16-nodes": (16, (0.4, 0.6), (0.38, 0.54)),
    "v100-8-gpu": (1, (0.43, 0.51), (1 / 1.2, 1 / 0.8)),
}
"""Number of nodes, and the ranges of availability and of losses per node-hour in the recorded traces."""


@pytest.mark.parametrize("name", PRESETS)
def test_the_model_has_the_figures_of_the_recorded_traces(name: str) -> None:
    nodes, availability, losses = RANGES[name]
    model = PRESETS[name]
    trace = model.trace(nodes, hours=24 * 200, seed=1)
    figures = trace.figures()
    assert availability[0] <= figures.availability <= availability[1]
    assert losses[0] <= figures.losses_per_node_hour <= losses[1]
    assert figures.availability == pytest.approx(model.share, rel=0.15)
    assert figures.losses_per_node_hour == pytest.approx(model.losses_per_node_hour, rel=0.15)
    check(trace)


def test_all_nodes_of_a_zone_can_vanish_at_one_moment() -> None:
    model = PRESETS["v100-16-nodes"]
    one_zone = model.trace(16, hours=24 * 100, seed=2).figures()
    assert one_zone.largest_drop == 16
    assert 0.44 <= one_zone.any_share <= 0.63
    spread = model.trace(16, zones=16, hours=24 * 100, seed=2).figures()
    assert spread.largest_drop == 1
    assert spread.any_share > 0.99
    assert spread.losses_per_node_hour == pytest.approx(one_zone.losses_per_node_hour, rel=0.1)


def test_the_rate_of_losses_changes_without_the_availability() -> None:
    model = PRESETS["v100-4-nodes"].with_losses(2.0)
    assert model.losses_per_node_hour == pytest.approx(2.0)
    assert model.share == pytest.approx(PRESETS["v100-4-nodes"].share)


def test_a_seed_gives_one_trace() -> None:
    model = PRESETS["v100-16-nodes"]
    assert model.trace(8, 2, 48, 5) == model.trace(8, 2, 48, 5)
    assert model.trace(8, 2, 48, 5) != model.trace(8, 2, 48, 6)
