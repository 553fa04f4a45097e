"""Tests of Chakra traces of a real DDP training: two processes with gloo, recorded and converted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from convoy_workloads.traces.attributes import number_of, value_of
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.replay import measured_span, naive_replay, replay
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.trace import Trace, group_of, is_communication, kind_of, size_of
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.reader import read_whole
from convoy_workloads.traces.wire.writer import write

PROGRAM = Path(__file__).parent / "programs" / "traced.py"
CHAKRA = os.environ.get("CONVOY_CHAKRA_PYTHON", "")
"""Interpreter of an environment with MLCommons' package mlc-chakra. Without it, its test is skipped."""
SLOW_US = 250_000


@pytest.fixture(scope="module")
def reports_and_traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Trace]]:
    """Return the report and the converted trace of each rank."""
    rendezvous, folder = tmp_path_factory.mktemp("rendezvous"), tmp_path_factory.mktemp("traces")
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(rendezvous), str(folder)], stdout=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    try:
        # Kineto prints lines of its own before the report.
        printed = [one.communicate(timeout=150)[0].splitlines() for one in running]
    finally:
        for one in running:
            one.kill()
    reports = [json.loads(next(line for line in lines if line.startswith(b"{"))) for lines in printed]
    traces = []
    for rank in (0, 1):
        files = [load_json(folder / f"{kind}.{rank}.json") for kind in ("host", "kineto")]
        conversion = convert(*files)
        assert conversion.findings == []
        traces.append(conversion.trace)
    return reports, traces


@pytest.fixture(scope="module")
def traces(reports_and_traces: tuple[list[dict[str, Any]], list[Trace]]) -> list[Trace]:
    return reports_and_traces[1]


def test_bytes_of_each_step_are_those_of_the_parameters(
    reports_and_traces: tuple[list[dict[str, Any]], list[Trace]],
) -> None:
    for report, trace in zip(*reports_and_traces, strict=True):
        assert report["problem"] == ""
        sizes = defaultdict[tuple[int, str], int](int)
        for node in filter(is_communication, trace.nodes):
            sizes[value_of(node, "step"), group_of(node)] += size_of(node)
        gradients = report["parameters"] * 4
        assert sizes == {(3, "0"): gradients, (4, "0"): gradients, (3, "1"): 12, (4, "1"): 12}


def test_both_ranks_have_the_same_collectives(traces: list[Trace]) -> None:
    assert [trace.rank for trace in traces] == [0, 1]
    assert [found for trace in traces for found in check_trace(trace)] == []
    assert check_ranks(traces) == []
    calls = [[kind_of(node) for node in trace.nodes if is_communication(node)] for trace in traces]
    assert calls[0] == calls[1] == ["ALL_REDUCE"] * len(calls[0])
    assert len(calls[0]) >= 6, "two buckets or more, and the control group, in two steps"


def test_a_replay_gives_the_measured_time(traces: list[Trace]) -> None:
    for trace in traces:
        begin = min(node.start_time_micros for node in trace.nodes)
        played = replay(trace)
        assert abs(played.span - measured_span(trace)) <= 1
        assert max(abs(one.start - (one.node.start_time_micros - begin)) for one in played.played) <= 1


def test_the_rank_that_waits_has_exposed_waits_which_the_naive_rule_counts_twice(traces: list[Trace]) -> None:
    """Rank 0 waits in each step for rank 1, whose delay is longer than a busy machine's."""
    fast = traces[0]
    waited = sum(number_of(node, "wait_us") for node in fast.nodes)
    assert waited > SLOW_US
    measured = measured_span(fast)
    assert measured + SLOW_US < naive_replay(fast).span <= measured + waited
    assert replay(fast, lambda node: 0.0).span < measured - SLOW_US


def test_a_trace_comes_back_from_its_file(traces: list[Trace], tmp_path: Path) -> None:
    for trace in traces:
        path = tmp_path / f"job.{trace.rank}.et.gz"
        write(trace, path)
        assert read_whole(path).nodes == trace.nodes


@pytest.mark.skipif(not CHAKRA, reason="CONVOY_CHAKRA_PYTHON names no interpreter with mlc-chakra")
def test_upstreams_reader_reads_the_traces(traces: list[Trace], tmp_path: Path) -> None:
    """MLCommons' own package reads each node, and the same bytes of communication."""
    code = """
import json, sys
from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node, COMM_COLL_NODE
from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd
file = openFileRd(sys.argv[1])
assert decodeMessage(file, GlobalMetadata())
count = size = 0
node = Node()
while decodeMessage(file, node):
    count += 1
    values = {one.name: one for one in node.attr}
    if node.type == COMM_COLL_NODE:
        assert not values["is_cpu_op"].bool_val and values["comm_type"].int64_val == 0
        size += values["comm_size"].int64_val
    node = Node()
print(json.dumps([count, size]))
"""
    for trace, name in ((traces[0], "job.0.et"), (traces[1], "job.1.et.gz")):
        write(trace, tmp_path / name)
        done = subprocess.run(
            [CHAKRA, "-c", code, str(tmp_path / name)], capture_output=True, text=True, check=True
        )
        total = sum(size_of(node) for node in trace.nodes if is_communication(node))
        assert json.loads(done.stdout) == [len(trace.nodes), total]
