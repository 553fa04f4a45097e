"""Tests of data-parallel steps on hosts in racks: closed forms, placements, buckets, sweeps, bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.astrasim.parameters import AlgorithmKind
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.step.parsing import study_file
from convoy_controllers.astrasim.step.predict import CannotPredict, Prediction, predict
from convoy_controllers.astrasim.step.racks import InvalidPlacement, Rates, network, racks_of
from convoy_controllers.astrasim.step.shape import Reduction, StepShape, with_buckets
from convoy_controllers.astrasim.step.study import Setup, study

GB = 2**30
SIZE = 64 * 2**20
FAST_MEMORY = 1e6


def of(placement: str, ranks: int = 8, rate: float = 10.0, *reductions: Reduction) -> Prediction:
    shape = StepShape(reductions or (Reduction(0.0, SIZE),))
    return predict(
        shape, network(racks_of(placement, ranks), Rates(rate, rate)), memory=FAST_MEMORY, endpoint_ns=1
    )


def test_a_ring_in_one_rack_takes_the_time_of_its_bytes() -> None:
    bytes_of_a_rank = 2 * 7 / 8 * SIZE
    assert of("1 rack").seconds == pytest.approx(bytes_of_a_rank / (10 * GB), rel=1e-3)


def test_only_ranks_that_take_turns_fill_the_uplinks() -> None:
    one, two, turns = of("1 rack"), of("2 racks"), of("2 racks alternating")
    assert one.seconds == pytest.approx(two.seconds, rel=1e-3)
    # All four messages of a rack cross its uplink at once.
    assert turns.seconds == pytest.approx(4 * one.seconds, rel=1e-3)
    assert turns.bottleneck is not None and turns.bottleneck.name == "rack-0 -> spine"


def test_a_rack_with_a_slow_uplink_is_the_bottleneck() -> None:
    racks = racks_of("4+4", 8)
    shape = StepShape((Reduction(0.0, SIZE),))
    found = predict(shape, network(racks, Rates(10.0, 10.0), {"rack-1": 1.0}), memory=FAST_MEMORY)
    assert found.bottleneck is not None and "rack-1" in found.bottleneck.name
    assert found.seconds == pytest.approx(10 * of("4+4").seconds, rel=1e-2)


def test_computation_hides_all_reduces_unless_it_waits_for_them() -> None:
    shape = StepShape((Reduction(0.1, SIZE), Reduction(0.1, SIZE), Reduction(0.1, 8)), 0.02, 0.03)
    fabric = network(racks_of("1 rack", 4), Rates(10.0, 10.0))
    hidden = predict(shape, fabric)
    waits = predict(replace(shape, overlaps=False), fabric)
    assert hidden.seconds == pytest.approx(shape.compute_seconds, rel=1e-3)
    assert waits.seconds == pytest.approx(shape.compute_seconds + waits.communication_seconds, rel=1e-3)
    assert waits.exposed_seconds == pytest.approx(waits.communication_seconds, rel=1e-3)


def test_a_budget_of_events_ends_a_prediction() -> None:
    with pytest.raises(CannotPredict, match="5 events"):
        predict(StepShape((Reduction(0.0, SIZE),)), network(("a", "a"), Rates(1.0, 1.0)), events=5)


@given(
    st.sampled_from(["1 rack", "2 racks", "2 racks alternating", "3+1"]),
    st.lists(st.integers(1, 1 << 22), min_size=1, max_size=4),
    st.floats(0.1, 10),
    st.floats(1, 4),
)
def test_faster_links_never_make_a_step_slower(
    placement: str, sizes: list[int], rate: float, factor: float
) -> None:
    reductions = [Reduction(1e-4, size) for size in sizes]
    slow, fast = (of(placement, 4, one, *reductions) for one in (rate, rate * factor))
    assert fast.seconds <= slow.seconds + 1e-7


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 1000)), min_size=1, max_size=6), st.integers(1, 2000)
)
def test_other_buckets_have_the_same_gradients_and_computation(
    parts: list[tuple[float, int]], bucket: int
) -> None:
    shape = StepShape(tuple(Reduction(seconds, size) for seconds, size in parts), 0.5, 0.25)
    found = with_buckets(shape, bucket)
    assert found.bytes == shape.bytes
    assert found.compute_seconds == pytest.approx(shape.compute_seconds)
    assert all(one.bytes == bucket for one in found.reductions[:-1])
    assert all(one.seconds >= -1e-9 for one in found.reductions)


def test_buckets_of_the_recorded_size_are_the_recorded_ones() -> None:
    shape = StepShape((Reduction(0.3, 100), Reduction(0.1, 100), Reduction(0.2, 50)))
    assert [one.seconds for one in with_buckets(shape, 100).reductions] == pytest.approx([0.3, 0.1, 0.2])
    assert [one.seconds for one in with_buckets(shape, 50).reductions] == pytest.approx(
        [0.15, 0.15, 0.05, 0.05, 0.2]
    )


@pytest.mark.parametrize(
    ("text", "racks"),
    [
        ("1 rack", "0000"),
        ("2 racks", "0011"),
        ("3 racks", "0012"),
        ("2 racks alternating", "0101"),
        ("3+1", "0001"),
    ],
)
def test_a_placement_names_the_rack_of_each_rank(text: str, racks: str) -> None:
    assert racks_of(text, 4) == tuple(f"rack-{one}" for one in racks)


@pytest.mark.parametrize("text", ["", "0 racks", "5 racks", "4+0", "2+1", "two racks", "-1 racks", "2 Racks"])
def test_other_placements_are_refused(text: str) -> None:
    with pytest.raises(InvalidPlacement):
        racks_of(text, 4)


STEP: dict[str, Any] = {"ranks": 4, "backwardSeconds": 0.001, "gradientBytes": 1000, "bucketBytes": 500}
LINKS: dict[str, Any] = {"hostGBps": 1}


def run(step: Any = None, links: Any = None, sweep: Any = None) -> list[Any]:
    body = {"step": STEP | (step or {}), "links": LINKS | (links or {}), "sweep": sweep or {}}
    found = study_file(body, lambda path: (StepShape((Reduction(0.1, 100),)), 3))
    return study(found.setup, found.axes)


def test_a_sweep_has_each_combination_and_the_last_axis_varies_fastest() -> None:
    found = run(sweep={"bucketBytes": [100, 1000], "ranks": [2, 4], "algorithm": ["ring", "direct"]})
    assert [tuple(one.values.values()) for one in found] == [
        (ranks, algorithm, size)
        for ranks in (2, 4)
        for algorithm in (AlgorithmKind.RING, AlgorithmKind.DIRECT)
        for size in (100, 1000)
    ]


def test_a_trace_gives_the_step_and_the_number_of_ranks() -> None:
    body = {"step": {"trace": "folder", "placement": "2+1"}, "links": LINKS}
    shape = StepShape((Reduction(0.1, 100),))
    found = study_file(body, lambda path: ({"folder": shape}[path], 3))
    assert found.setup == Setup(shape, 3, "2+1", Rates(1.0, 1.0))
    body = {"step": {"trace": "folder", "ranks": 5}, "links": LINKS}
    assert study_file(body, lambda path: (shape, 3)).setup.ranks == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": {"ranks": 1}}, "step.ranks: must be from 2"),
        ({"step": {"gradientBytes": 0}}, "step.gradientBytes: must be from 1"),
        ({"step": {"forwardSeconds": -1}}, "step.forwardSeconds: must be at least 0"),
        ({"step": {"forwardSeconds": 1e9}}, "step.forwardSeconds: must be at most 3600"),
        ({"step": {"placement": "5 racks"}}, "step.placement: must have 1 to 4 racks"),
        ({"step": {"algorithm": "tree"}}, "step.algorithm: must be one of"),
        (
            {"step": {"ranks": 6, "algorithm": "halvingDoubling"}},
            "step.algorithm: halvingDoubling needs a power",
        ),
        ({"step": {"gradientBytes": 10**6, "bucketBytes": 1}}, "step.bucketBytes: makes 1000000 buckets"),
        ({"step": {"ranks": 1024, "bucketBytes": 100}}, "step: needs about 20,951,040 messages"),
        ({"step": {"trace": "folder"}}, "step.backwardSeconds: there is no such field"),
        ({"step": {"buckets": 3}}, "step.buckets: there is no such field"),
        ({"links": {"hostGBps": 0}}, "links.hostGBps: must be at least 1e-06"),
        ({"sweep": {"ranks": []}}, "sweep.ranks: needs at least one value"),
        ({"sweep": {"ranks": [2, 2]}}, "sweep.ranks: needs at least one value, and each only once"),
        ({"sweep": {"gpus": [2]}}, "sweep.gpus: there is no such field"),
        ({"sweep": {"placement": ["3+3"]}}, "sweep.placement: must have 4 ranks in all"),
        ({"sweep": {"hostGBps": list(range(1, 258))}}, "sweep: has 257 combinations"),
    ],
)
def test_bad_input_names_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        run(**change)
    assert str(caught.value).startswith(message)
