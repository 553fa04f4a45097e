"""Tests of the conversion of recorded traces: DDP training with gloo, and each kind of communication."""

from __future__ import annotations

import gzip
from collections import defaultdict
from functools import cache

import pytest
from tests.unit.workloads.traces.build import FIXTURES

from convoy_workloads.runtime.tracing import JSON_FACTOR
from convoy_workloads.traces.attributes import number_of, text_of, value_of
from convoy_workloads.traces.convert.convert import Conversion, convert
from convoy_workloads.traces.replay import measured_span, naive_replay, replay
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.trace import Trace, group_of, is_communication, kind_of, size_of
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.chakra_pb2 import Node
from convoy_workloads.traces.wire.reader import decode
from convoy_workloads.traces.wire.writer import encode

PARAMETERS = (16 * 32 + 32) + (32 * 32 + 32) + (32 * 4 + 4)
FOLDERS = ("ddp", "collectives")


@cache
def conversion(folder: str, rank: int) -> Conversion:
    files = [FIXTURES / folder / f"{kind}.{rank}.json.gz" for kind in ("host", "kineto")]
    return convert(*(load_json(file) for file in files))


def traces(folder: str) -> list[Trace]:
    return [conversion(folder, rank).trace for rank in (0, 1)]


def communications(trace: Trace) -> list[Node]:
    return [node for node in trace.nodes if is_communication(node)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_converted_traces_are_valid_and_agree(folder: str) -> None:
    for rank, trace in enumerate(traces(folder)):
        assert trace.rank == rank
        assert check_trace(trace) == []
        assert decode(encode(trace), rank).trace.nodes == trace.nodes
    assert check_ranks(traces(folder)) == []


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("rank", [0, 1])
def test_files_of_torch_are_bounded_multiples_of_the_trace(folder: str, rank: int) -> None:
    """Nearly all nodes of `collectives` are communications, for which torch writes most."""
    files = [FIXTURES / folder / f"{kind}.{rank}.json.gz" for kind in ("host", "kineto")]
    found = sum(len(gzip.decompress(file.read_bytes())) for file in files)
    size = len(encode(conversion(folder, rank).trace))
    assert JSON_FACTOR / 2 < found / size <= JSON_FACTOR


@pytest.mark.parametrize("rank", [0, 1])
def test_training_with_ddp_leaves_nothing_unclear(rank: int) -> None:
    assert conversion("ddp", rank).findings == []


@pytest.mark.parametrize("trace", traces("ddp"), ids=["rank0", "rank1"])
def test_bytes_of_a_step_are_those_of_the_gradients(trace: Trace) -> None:
    sizes = defaultdict[tuple[int, str], list[int]](list)
    for node in communications(trace):
        sizes[value_of(node, "step"), group_of(node)].append(size_of(node))
    assert {key: sum(found) for key, found in sizes.items()} == {
        (3, "0"): PARAMETERS * 4,
        (4, "0"): PARAMETERS * 4,
        (3, "1"): 12,
        (4, "1"): 12,
    }
    assert len(sizes[3, "0"]) == 2  # buckets
    assert text_of(trace.metadata, "process_groups") == '{"0": [0, 1], "1": [0, 1]}'


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_replay_gives_the_measured_times(folder: str, rank: int) -> None:
    trace = traces(folder)[rank]
    begin = min(node.start_time_micros for node in trace.nodes)
    played = replay(trace).played
    assert max(abs(one.start - (one.node.start_time_micros - begin)) for one in played) <= 1
    assert abs(replay(trace).span - measured_span(trace)) <= 1


@pytest.mark.parametrize("rank", [0, 1])
def test_the_naive_rule_counts_waits_twice(rank: int) -> None:
    trace = traces("ddp")[rank]
    waited = sum(number_of(node, "wait_us") for node in trace.nodes)
    assert waited > 10_000
    # Recorded: waits of this run are 33 and 40 % of the two steps.
    assert 1.3 < naive_replay(trace).span / measured_span(trace) < 1.5
    assert naive_replay(trace).span <= measured_span(trace) + waited


@pytest.mark.parametrize("rank", [0, 1])
def test_slower_communication_never_makes_a_step_shorter(rank: int) -> None:
    trace = traces("ddp")[rank]
    spans = [
        replay(trace, lambda node, by=by: node.duration_micros * by).span for by in (0.0, 0.1, 1.0, 2.0, 9.0)
    ]
    assert spans == sorted(spans)
    assert spans[0] < spans[2] < spans[4]


@pytest.mark.parametrize("trace", traces("ddp") + traces("collectives"))
def test_dependencies_end_before_what_needs_them(trace: Trace) -> None:
    ends = {node.id: node.start_time_micros + node.duration_micros for node in trace.nodes}
    for node in trace.nodes:
        assert all(ends[one] <= node.start_time_micros for one in (*node.data_deps, *node.ctrl_deps))


def test_each_kind_of_communication() -> None:
    found = [
        (kind_of(node), size_of(node), group_of(node)) for node in communications(traces("collectives")[0])
    ]
    assert found[:11] == [
        ("ALL_REDUCE", 32, "0"),
        ("ALL_REDUCE", 32, "1"),
        ("BROADCAST", 32, "0"),
        ("REDUCE", 32, "0"),
        ("ALL_GATHER", 32, "0"),
        ("ALL_GATHER", 32, "0"),
        ("REDUCE_SCATTER", 32, "0"),
        ("ALL_TO_ALL", 32, "0"),
        ("GATHER", 32, "0"),
        ("SCATTER", 64, "0"),
        ("BARRIER", 0, "0"),
    ]
    assert [(kind, size) for kind, size, _ in found[11:]] == [
        ("SEND", 32),
        ("SEND", 32),
        ("RECV", 32),
        ("ALL_REDUCE", 32),
        ("ALL_REDUCE", 44),
    ]


def test_ends_and_tags_of_messages() -> None:
    for rank, expected in ((0, [(0, 1, 5), (0, 1, 6), (1, 0, 6)]), (1, [(0, 1, 5), (1, 0, 6), (0, 1, 6)])):
        nodes = [
            node for node in communications(traces("collectives")[rank]) if kind_of(node) in {"SEND", "RECV"}
        ]
        names = ("comm_src", "comm_dst", "comm_tag")
        assert [tuple(value_of(node, name) for name in names) for node in nodes] == expected
