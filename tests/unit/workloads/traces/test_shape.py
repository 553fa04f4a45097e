"""Tests of the shape of a step that traces show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.workloads.traces.build import collective, comp, trace
from tests.unit.workloads.traces.test_predict import step, timed

from convoy_controllers.astrasim.step.shape import Reduction, StepShape
from convoy_workloads.traces.findings import InvalidTrace
from convoy_workloads.traces.generate.traces import generate
from convoy_workloads.traces.generate.workload import Workload
from convoy_workloads.traces.predict.job import job_of
from convoy_workloads.traces.predict.shape import shape_of


def of(*traces: object) -> StepShape:
    return shape_of(job_of(timed(list(traces))))  # type: ignore[arg-type]


def rounded(shape: StepShape) -> StepShape:
    """Return the shape in whole microseconds."""
    parts = tuple(replace(one, seconds=round(one.seconds * 1e6)) for one in shape.reductions)
    head, tail = round(shape.head_seconds * 1e6), round(shape.tail_seconds * 1e6)
    return StepShape(parts, head, tail, shape.overlaps)


def test_communication_takes_no_part_in_the_computation() -> None:
    found = rounded(of(*(step(rank, 100, (400, 200, 200), 20) for rank in range(2))))
    assert found == StepShape((Reduction(40, 400), Reduction(20, 200), Reduction(20, 200)), 80, 5, True)


def test_computation_that_waits_for_an_all_reduce_does_not_overlap() -> None:
    def waits(rank: int) -> object:
        return trace(
            comp(1, duration=30), collective(2, deps=(1,), size=100), comp(3, (2,), 30),
            collective(4, deps=(3,), size=100), comp(5, (4,), 7), rank=rank,
        )  # fmt: skip

    found = rounded(of(waits(0), waits(1)))
    assert found == StepShape((Reduction(30, 100), Reduction(30, 100)), 0, 7, False)


def test_one_all_reduce_follows_a_backward_pass_of_two_thirds() -> None:
    found = rounded(of(*(step(rank, 30, (100,), 60) for rank in range(2))))
    assert found == StepShape((Reduction(60, 100),), 30, 5, True)


def test_a_generated_job_has_the_shape_of_its_options() -> None:
    workload = Workload(
        layers=4, data=3, steps=2, forward_us=100, backward_us=200, optimizer_us=50, parameter_bytes=4096
    )
    found = rounded(shape_of(job_of(list(generate(workload)))))
    assert found == StepShape((Reduction(200, 4096),) * 4, 400, 200, True)


def test_a_first_step_with_other_buckets_does_not_count() -> None:
    def both(rank: int) -> object:
        nodes = [comp(0, duration=1, step=0), collective(1, deps=(0,), size=600, step=0)]
        for number in (1, 2):
            base = 10 * number
            nodes += [
                comp(base, (base - 9 if number == 1 else base - 8,), 30, step=number),
                collective(base + 1, deps=(base,), size=300, step=number),
                collective(base + 2, deps=(base + 1,), size=300, step=number),
            ]
        return trace(*nodes, rank=rank)

    assert [one.bytes for one in of(both(0), both(1)).reductions] == [300, 300]


def test_a_job_that_is_not_data_parallel_is_refused() -> None:
    workload = Workload(layers=2, data=2, tensor=2)
    with pytest.raises(InvalidTrace, match="layer 0 forward attention all-reduce"):
        shape_of(job_of(list(generate(workload))))
    with pytest.raises(InvalidTrace, match="no step has an all-reduce"):
        shape_of(job_of([trace(comp(1), rank=0)]))
