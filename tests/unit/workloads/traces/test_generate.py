"""Tests of synthetic workloads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from convoy_workloads.traces.attributes import value_of
from convoy_workloads.traces.comm_models import RingModel
from convoy_workloads.traces.generate.traces import generate
from convoy_workloads.traces.generate.workload import InvalidWorkload, Schedule, Workload, passes
from convoy_workloads.traces.replay import replay
from convoy_workloads.traces.trace import Trace, group_of, kind_of, size_of
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.one_trace import check_trace

BASE = Workload(layers=4, parameter_bytes=800, activation_bytes=64)


def traffic(trace: Trace) -> Counter[tuple[str, str]]:
    """Return the bytes of each kind in each group."""
    found = Counter[tuple[str, str]]()
    for node in trace.nodes:
        if kind_of(node) != "COMP":
            found[group_of(node), kind_of(node)] += size_of(node)
    return found


@pytest.mark.parametrize("data", [1, 3])
@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("pipeline", [1, 2, 4])
@pytest.mark.parametrize("schedule", list(Schedule))
def test_traces_are_valid_and_all_ranks_agree(
    data: int, tensor: int, pipeline: int, schedule: Schedule
) -> None:
    workload = replace(
        BASE,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        schedule=schedule,
        microbatches=3,
        steps=2,
        operations=9,
    )
    traces = list(generate(workload))
    assert [one.rank for one in traces] == list(range(data * tensor * pipeline))
    assert [found for one in traces for found in check_trace(one)] == []
    assert check_ranks(traces) == []


def test_bytes_of_data_parallelism_are_those_of_the_parameters() -> None:
    for trace in generate(replace(BASE, data=3, microbatches=5, steps=2)):
        assert traffic(trace) == {("data-0-0", "ALL_REDUCE"): 2 * 4 * 800}


def test_bytes_of_tensor_parallelism() -> None:
    """Each layer has two all-reduces forward and two backward, for each microbatch."""
    for trace in generate(replace(BASE, tensor=2, microbatches=5)):
        assert traffic(trace) == {("tensor-0-0", "ALL_REDUCE"): 5 * 4 * 4 * 64}


def test_bytes_of_a_pipeline() -> None:
    found = [traffic(trace) for trace in generate(replace(BASE, pipeline=4, microbatches=5))]
    ends = {("", "SEND"): 5 * 64, ("", "RECV"): 5 * 64}
    middle = {("", "SEND"): 2 * 5 * 64, ("", "RECV"): 2 * 5 * 64}
    assert found == [ends, middle, middle, ends]


def test_time_without_communication_is_that_of_the_layers() -> None:
    (trace,) = generate(replace(BASE, steps=3, microbatches=2))
    assert replay(trace).span == 3 * 4 * (2 * (100 + 200) + 50)


def test_gradients_are_added_up_beside_the_backward_pass() -> None:
    """Three of 4 all-reduces of 200 µs run beside the backward passes of other layers, which take 200 µs."""
    (trace, _) = generate(replace(BASE, data=2))
    assert replay(trace, lambda node: 200.0).span == 4 * (100 + 200 + 50) + 200


def test_the_next_half_of_a_layer_waits_for_tensor_parallelism() -> None:
    (trace, _) = generate(replace(BASE, tensor=2))
    ring = RingModel(latency_us=1, bytes_per_us=64, ranks=2)
    assert replay(trace, ring).span == 4 * (100 + 200 + 50) + 16 * (2 * 1 + 1)


@pytest.mark.parametrize(
    ("schedule", "stage", "expected"),
    [
        (Schedule.GPIPE, 0, "F0 F1 F2 F3 B0 B1 B2 B3"),
        (Schedule.ONE_F_ONE_B, 0, "F0 F1 F2 B0 F3 B1 B2 B3"),
        (Schedule.ONE_F_ONE_B, 1, "F0 F1 B0 F2 B1 F3 B2 B3"),
        (Schedule.ONE_F_ONE_B, 2, "F0 B0 F1 B1 F2 B2 F3 B3"),
    ],
)
def test_schedules(schedule: Schedule, stage: int, expected: str) -> None:
    workload = replace(BASE, layers=3, pipeline=3, microbatches=4, schedule=schedule)
    order = " ".join(f"{'B' if backward else 'F'}{one}" for backward, one in passes(workload, stage))
    assert order == expected


def test_operations_are_shared_by_the_ranks_of_a_layer() -> None:
    (trace, _) = generate(replace(BASE, tensor=2, operations=1000))
    assert {value_of(node, "num_ops") for node in trace.nodes} == {None, 250, 500}
    assert {value_of(node, "tensor_size") for node in trace.nodes} == {None, 64 + 400}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"layers": 0}, "layers: must be at least 1"),
        ({"forward_us": -1}, "forward_us: must be at least 0"),
        ({"pipeline": 3}, "layers: 4 layers cannot be split into 3 equal stages"),
        ({"data": 5000}, "5000 ranks; at most 4096"),
        ({"steps": 10**7}, "at most 5000000"),
        ({"parameter_bytes": 2**50}, "parameter_bytes: must be"),
    ],
)
def test_a_workload_is_checked(change: dict[str, int], text: str) -> None:
    with pytest.raises(InvalidWorkload, match=text):
        next(generate(replace(BASE, **change)))  # type: ignore[arg-type]
