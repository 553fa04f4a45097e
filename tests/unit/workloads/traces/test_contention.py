"""Tests of predicted times without the communications that ran beside operators, and of fits of one size."""

from __future__ import annotations

import pytest
from tests.unit.workloads.traces.build import collective, comp, trace

from convoy_workloads.traces.predict.calibration import calibrate
from convoy_workloads.traces.predict.contention import without_contention
from convoy_workloads.traces.predict.job import Job, job_of
from convoy_workloads.traces.wire.chakra_pb2 import Node


def at(node: Node, start: int, duration: int, name: str = "") -> Node:
    node.start_time_micros, node.duration_micros, node.name = start, duration, name or node.name
    return node


def recorded() -> Job:
    """Return a job with an all-reduce from 100 to 200, and operators before, beside and after it."""
    nodes = [
        at(comp(1), 0, 10, "mm"),
        at(comp(2), 20, 12, "mm"),
        at(collective(3, size=100), 100, 100),
        at(comp(4), 110, 40, "mm"),
        at(comp(5), 150, 5, "mm"),
        at(comp(6), 160, 30, "add"),
        at(comp(7), 195, 50, "mm"),
        at(comp(8), 300, 14, "mm"),
    ]
    return job_of([trace(*nodes, rank=rank) for rank in (0, 1)], [0.0, 0.0])


def test_operators_beside_a_communication_take_as_long_as_alone() -> None:
    job = recorded()
    for one in without_contention(job).traces:
        times = {node.id: node.duration_micros for node in one.nodes}
        # 12 is the median of 10, 12 and 14. A shorter one and a kind that never ran alone stay as they are.
        assert times == {1: 10, 2: 12, 3: 100, 4: 12, 5: 5, 6: 30, 7: 12, 8: 14}
    assert job.traces[0].nodes[3].duration_micros == 40, "the job itself does not change"


@pytest.mark.parametrize(("sizes", "fitted"), [((1000, 800), False), ((1000, 20), True)])
def test_a_latency_is_fitted_only_with_small_communications(sizes: tuple[int, int], fitted: bool) -> None:
    # Links of 1 byte/us and a latency of 50 us for each of the 2 messages of an all-reduce.
    nodes = [
        at(collective(number, size=size), 10_000 * number, size + 100) for number, size in enumerate(sizes)
    ]
    found = calibrate(job_of([trace(*nodes, rank=rank) for rank in (0, 1)], [0.0, 0.0]))
    assert found is not None
    assert (found.links.latency_us > 25) is fitted
