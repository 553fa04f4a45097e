"""Sweeps of the load/store mode: points, crossovers against their closed form, budgets and invalid input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.astrasim.loadstore import sweep as module
from convoy_controllers.astrasim.loadstore.parameters import Access, Algorithm, Gpu, Links, Mode, Setup, Sync
from convoy_controllers.astrasim.loadstore.parsing import study
from convoy_controllers.astrasim.loadstore.run import run
from convoy_controllers.astrasim.loadstore.sweep import AXES, Sweep, sweep
from convoy_controllers.astrasim.parsing.fields import InvalidInput

ALL_REDUCES = (Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.RING)
SMALL = Setup(
    sync=Sync.GPU,
    mode=Mode.EVENTS,
    gpu=Gpu(workgroups=8, outstanding=4096, issue=0, cache=50, memory=100, reduce=0, barrier=50),
    links=Links(gpus=4, bandwidth=50, latency=100),
)
SIZES = tuple(1 << power for power in range(10, 19))


@pytest.fixture(scope="module", name="swept")
def sweep_of_sizes() -> Sweep:
    """Return a sweep over algorithms and sizes."""
    return sweep(SMALL, {"algorithm": ALL_REDUCES, "bytes": SIZES})


def test_a_sweep_runs_every_combination(swept: Sweep) -> None:
    assert [(one.setup.size, one.setup.algorithm) for one in swept.points] == [
        (size, algorithm) for size in SIZES for algorithm in ALL_REDUCES
    ]
    assert all(one.outcome == run(one.setup) for one in swept.points[:3])


def test_the_crossover_is_where_the_textbook_has_it(swept: Sweep) -> None:
    """alpha of a phase times the number of phases more, over the bytes per GPU less."""
    phase = (2 * 50 + 4 * 100 + 100) + (50 + 2 * 100 + 100 + 50) + 2 * 50
    reduce = 2 * 50 + 100
    one_shot, part = 3 / 50, 1 / 4 / 50
    expected = {
        Algorithm.TWO_SHOT: phase / (one_shot - 6 * part),
        Algorithm.RING: (5 * phase + 2 * reduce) / (one_shot - 6 * part),
    }
    found = {one.faster: one for one in swept.crossovers}
    assert set(found) == set(expected)
    for algorithm, one in found.items():
        assert one.slower is Algorithm.ONE_SHOT
        assert one.size == pytest.approx(expected[algorithm], rel=0.01)
        assert one.error is not None and abs(one.error) < 0.01


def test_the_times_change_their_order_at_the_crossover(swept: Sweep) -> None:
    for one in swept.crossovers:
        for factor, faster in ((0.97, one.slower), (1.03, one.faster)):
            times = {
                algorithm: run(replace(SMALL, algorithm=algorithm, size=round(factor * one.size))).time
                for algorithm in (one.slower, one.faster)
            }
            assert min(times, key=lambda algorithm: times[algorithm]) is faster


def test_more_latency_moves_the_crossover_up_and_more_bandwidth_too() -> None:
    """Both make the bytes cheaper against the phases. So a design needs the right latency."""
    axes: dict[str, Any] = {
        "algorithm": (Algorithm.ONE_SHOT, Algorithm.RING),
        "bytes": (1 << 14, 1 << 21),
        "bytesPerNs": (50.0, 100.0),
        "latencyNs": (100.0, 400.0),
    }
    analytical = replace(SMALL, mode=Mode.ANALYTICAL)
    sizes = {tuple(one.values.values()): one.size for one in sweep(analytical, axes).crossovers}
    assert len(sizes) == 4
    assert sizes[50.0, 100.0] < sizes[50.0, 400.0] < sizes[100.0, 400.0]
    assert sizes[100.0, 100.0] == pytest.approx(2 * sizes[50.0, 100.0], rel=0.02)


def test_few_requests_in_flight_move_the_crossover_down() -> None:
    axes: dict[str, Any] = {
        "algorithm": (Algorithm.ONE_SHOT, Algorithm.TWO_SHOT),
        "bytes": (1 << 10, 1 << 20),
        "outstanding": (1, 4096),
    }
    few, many = sweep(replace(SMALL, mode=Mode.ANALYTICAL), axes).crossovers
    assert few.values == {"outstanding": 1} and few.size < many.size


def test_a_spent_budget_leaves_an_interpolated_crossover(monkeypatch: pytest.MonkeyPatch) -> None:
    axes: dict[str, Any] = {"algorithm": (Algorithm.ONE_SHOT, Algorithm.RING), "bytes": (1 << 17, 1 << 18)}
    exact = sweep(SMALL, axes)
    needed = sum(one.outcome.events for one in exact.points)
    monkeypatch.setattr(module, "_check_events", lambda setups, budget: None)
    short = sweep(SMALL, axes, needed)
    assert short.events == needed < exact.events
    assert short.crossovers[0].size == pytest.approx(exact.crossovers[0].size, rel=0.05)


def test_runs_at_the_seam_are_shared_by_the_sizes_above() -> None:
    hybrid = replace(SMALL, mode=Mode.HYBRID, seam=1 << 12)
    axes: dict[str, Any] = {"bytes": tuple(1 << power for power in range(12, 20))}
    events = run(replace(hybrid, size=1 << 12)).events
    assert {one.outcome.events for one in sweep(hybrid, axes, 2 * events).points} == {events}


@pytest.mark.parametrize("name", AXES)
def test_every_axis_changes_its_parameter(name: str) -> None:
    values: dict[str, Any] = {"access": Access.GET, "algorithm": Algorithm.RING}
    assert AXES[name](SMALL, values.get(name, 3)) != SMALL


def parsed(**changes: Any) -> Sweep:
    """Run the sweep of a file with some changes of its members."""
    found = study({"loadStore": {"mode": "analytical", **changes.pop("loadStore", {})}, **changes})
    assert found.axes is not None
    return sweep(found.setup, found.axes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"size": [1]}, "sweep.size: there is no such field"),
        ({"bytes": []}, "sweep.bytes: needs at least one value"),
        ({"bytes": [64, 64]}, "sweep.bytes: needs at least one value, and each one once"),
        ({"bytes": ["64"]}, 'sweep.bytes[0]: must be a whole number, is "64"'),
        ({"bytes": 64}, "sweep.bytes: must be a list, is 64"),
        ({"algorithm": ["tree"]}, "sweep.algorithm[0]: must be one of oneShot, twoShot, ring, direct"),
        ({"latencyNs": [-1]}, "sweep.latencyNs[0]: must be at least 0, is -1"),
        (
            {"workgroups": [8, 129]},
            "sweep: the point workgroups 129 is invalid: loadStore.gpu.workgroups: must be at most 128",
        ),
        (
            {"algorithm": ["ring", "direct"]},
            "sweep: the point algorithm direct is invalid: loadStore.algorithm: must be one of oneShot",
        ),
        (
            {"bytes": list(range(1, 101)), "outstanding": list(range(1, 101))},
            "sweep: has 10000 points, more than 4096: use fewer values",
        ),
    ],
)
def test_an_invalid_sweep_is_refused_with_its_path(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(sweep=axes)
    assert str(caught.value).startswith(message)


def test_a_sweep_with_too_many_events_is_refused_before_it_runs() -> None:
    axes: dict[str, Any] = {"bytes": [1 << 28, 1 << 29]}
    with pytest.raises(
        InvalidInput, match=r"^sweep: the points need about [\d,]+ events, more than 50,000,000"
    ):
        parsed(sweep=axes, loadStore={"mode": "events"})
