"""Tests of the conversion of torch's traces, by small made-up traces."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.workloads.traces.torch_docs import GLOO, MAIN, event, host, kineto, node, step, tensor, work

from convoy_workloads.traces.attributes import number_of, text_of, value_of
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.convert.kinds import kind_named, kind_of_kernel
from convoy_workloads.traces.findings import Rule
from convoy_workloads.traces.replay import measured_span, naive_replay, replay
from convoy_workloads.traces.trace import Collective, NodeType, Trace, kind_of, size_of
from convoy_workloads.traces.validate.one_trace import MINOR, check_trace


def converted(events: list[dict[str, Any]], *nodes: dict[str, Any], rules: tuple[Rule, ...] = ()) -> Trace:
    """Return the trace of these events. It is valid, and its replay gives the measured times.

    A communication without a known size is a minor fault.
    """
    conversion = convert(host(*nodes), kineto(*events))
    trace = conversion.trace
    assert tuple(one.rule for one in conversion.findings) == rules
    assert {one.rule for one in check_trace(trace)} <= (MINOR if Rule.UNKNOWN_SIZE in rules else set())
    begin = min(one.start_time_micros for one in trace.nodes)
    assert [one.start for one in replay(trace).played] == [
        one.start_time_micros - begin for one in trace.nodes
    ]
    assert replay(trace).span == measured_span(trace)
    return trace


def rows(trace: Trace) -> list[tuple[str, int, int, set[str]]]:
    """Return name, start, end and the names and starts of the data dependencies of each node."""
    names = {one.id: f"{one.name}@{one.start_time_micros}" for one in trace.nodes}
    return [
        (
            one.name,
            one.start_time_micros,
            one.start_time_micros + one.duration_micros,
            {names[needed] for needed in one.data_deps},
        )
        for one in trace.nodes
    ]


def test_an_operator_is_split_by_what_it_calls() -> None:
    trace = converted(
        [event("a", 0, 10), event("b", 2, 5), event("c", 3, 4), event("d", 5, 6), event("e", 12, 14)]
    )
    assert rows(trace) == [
        ("a", 0, 2, set()),
        ("b", 2, 3, {"a@0"}),
        ("c", 3, 4, {"b@2"}),
        ("b", 4, 5, {"c@3"}),
        ("d", 5, 6, {"b@4"}),
        ("a", 6, 10, {"d@5"}),
        ("e", 12, 14, {"a@6"}),
    ]
    # Later segments, and called operators, are controlled by the first segment of the caller.
    control = {one.id: (one.name, one.start_time_micros) for one in trace.nodes}
    assert [[control[two] for two in one.ctrl_deps] for one in trace.nodes] == [
        [], [], [], [("b", 2)], [("a", 0)], [("a", 0)], [],
    ]  # fmt: skip
    assert [number_of(one, "host_gap_us") for one in trace.nodes] == [0, 0, 0, 0, 0, 0, 2]


def test_an_operator_without_time_of_its_own_before_a_call_keeps_its_node() -> None:
    trace = converted([event("a", 0, 10), event("b", 0, 10)])
    assert rows(trace) == [("a", 0, 0, set()), ("b", 0, 10, {"a@0"})]


def test_times_are_rounded_so_that_nothing_is_lost() -> None:
    """A thousand operators of 0.4 µs take 400 µs."""
    trace = converted([event("a", one * 0.4, (one + 1) * 0.4) for one in range(1000)])
    assert sum(one.duration_micros for one in trace.nodes) == 400
    assert len(trace.nodes) == 1000


def test_ids_and_arguments_are_those_of_the_host_trace() -> None:
    nodes = [node(40, "a", 7, [tensor(1), 3], [tensor(2)]), node(41, "other", 8)]
    trace = converted([event("a", 0, 9, record=7), event("b", 2, 3, record=8)], *nodes)
    first = trace.nodes[0]
    assert (first.id, first.inputs.values) == (40, '[[1001,1,0,8,4,"cpu"],3]')
    # A node of the host trace with another name is not the operator's.
    assert [one.id for one in trace.nodes] == [40, 41, 42]
    assert trace.nodes[1].inputs.values == ""
    assert value_of(first, "is_cpu_op") is True


def test_a_thread_that_was_idle_waits_for_the_others() -> None:
    """Thread 2 starts after `a`, and `c` after `b`. `d` follows `c` at once: it waited for nothing."""
    trace = converted([event("a", 0, 4), event("b", 5, 9, 2), event("c", 10, 12), event("d", 12, 13)])
    assert rows(trace) == [
        ("a", 0, 4, set()),
        ("b", 5, 9, {"a@0"}),
        ("c", 10, 12, {"a@0", "b@5"}),
        ("d", 12, 13, {"c@10"}),
    ]


def test_the_producer_of_an_input_is_a_dependency() -> None:
    nodes = [node(1, "a", 1, [], [tensor(5)]), node(2, "b", 2), node(3, "c", 3, [[tensor(5)]], [tensor(6)])]
    events = [event("a", 0, 4, record=1), event("b", 4, 9, record=2), event("c", 9, 10, record=3)]
    assert rows(converted(events, *nodes))[2] == ("c", 9, 10, {"a@0", "b@4"})


LAUNCH = event("c10d::allreduce_", 10, 13, record=2)
LAUNCHED = node(20, "c10d::allreduce_", 2, [[tensor(5, 100)], "<Object>"], [[tensor(5, 100)]])
WORKED = node(21, "gloo:all_reduce", 3, [tensor(5, 100)])


def ddp(done: float) -> Trace:
    """Return a step whose all-reduce ends at `done`, and whose own time is 0-10, 13-20 and 25-40."""
    events = [
        step(7, 0, 40),
        LAUNCH,
        work(12, done, 3),
        event("aten::mm", 20, 25),
        event("aten::add", 38, 39),
    ]
    return converted(events, LAUNCHED, WORKED)


def test_a_launch_ends_where_its_work_starts() -> None:
    trace = ddp(18)
    assert rows(trace)[1:4] == [
        ("c10d::allreduce_", 10, 12, {"ProfilerStep#7@0"}),
        ("gloo:all_reduce", 12, 18, {"c10d::allreduce_@10"}),
        ("c10d::allreduce_", 12, 13, {"c10d::allreduce_@10"}),
    ]


def test_the_attributes_of_a_communication() -> None:
    found = next(one for one in ddp(18).nodes if one.type == NodeType.COLLECTIVE)
    values = {one.name: value_of(found, one.name) for one in found.attr}
    assert values == {"is_cpu_op": False, "comm_type": 0, "comm_size": 400, "pg_name": "0", "step": 7}
    assert found.id == 21


def test_a_wait_ends_with_the_work() -> None:
    """The step waits from 25 to 30. What it does from then on depends on the work."""
    trace = ddp(30)
    rest = next(one for one in trace.nodes if one.start_time_micros == 30)
    assert (rest.name, rest.duration_micros, number_of(rest, "wait_us")) == ("ProfilerStep#7", 8, 5)
    assert rows(trace)[-3] == ("ProfilerStep#7", 30, 38, {"aten::mm@20", "gloo:all_reduce@12"})
    assert replay(trace).span == 40
    assert naive_replay(trace).span == 45


@pytest.mark.parametrize(
    ("factor", "span"),
    [(1, 40), (0, 35), (0.5, 35), (0.75, 35.5), (2, 58)],
)
def test_a_faster_communication_shortens_the_wait_alone(factor: float, span: float) -> None:
    """The work takes 18 µs from 12 on; without a wait the step would take 35."""
    assert replay(ddp(30), lambda one: one.duration_micros * factor).span == span


def test_no_work_is_awaited_inside_an_operator_that_computes() -> None:
    trace = ddp(22)
    assert [one for one in trace.nodes if number_of(one, "wait_us")] == []
    assert ("aten::mm", 20, 25) in [row[:3] for row in rows(trace)]


def test_a_consumer_of_a_finished_work_depends_on_it() -> None:
    consumer = node(30, "aten::copy_", 9, [tensor(5, 100)])
    events = [
        step(7, 0, 40),
        LAUNCH,
        work(12, 22, 3),
        event("aten::mm", 20, 25),
        event("aten::copy_", 30, 31, record=9),
    ]
    trace = converted(events, LAUNCHED, WORKED, consumer)
    assert "gloo:all_reduce@12" in next(row for row in rows(trace) if row[0] == "aten::copy_")[3]
    assert replay(trace, lambda one: one.duration_micros * 3.0).span == 52


def test_works_of_a_thread_follow_each_other() -> None:
    events = [
        step(7, 0, 60),
        LAUNCH,
        event("c10d::allreduce_", 14, 15, record=4),
        work(12, 30, 3),
        work(31, 50, 5),
    ]
    nodes = [
        LAUNCHED,
        WORKED,
        node(22, "c10d::allreduce_", 4, [[tensor(6)]]),
        node(23, "gloo:all_reduce", 5, [tensor(6)]),
    ]
    found = [row for row in rows(converted(events, *nodes)) if row[0] == "gloo:all_reduce"]
    assert [row[3] for row in found] == [
        {"c10d::allreduce_@10"},
        {"c10d::allreduce_@14", "gloo:all_reduce@12"},
    ]


def test_a_wait_between_operators_is_found_without_an_annotation() -> None:
    trace = converted([LAUNCH, work(12, 30, 3), event("aten::add", 35, 36)], LAUNCHED, WORKED)
    last = trace.nodes[-1]
    assert (number_of(last, "wait_us"), number_of(last, "host_gap_us")) == (17, 5)


def test_communications_are_in_the_order_of_their_launches() -> None:
    """Two threads of gloo: the work that was launched second starts first."""
    events = [step(7, 0, 60), LAUNCH, event("c10d::allreduce_", 14, 15, record=4)]
    events += [work(20, 50, 3), work(16, 30, 5, tid=GLOO + 1)]
    nodes = [LAUNCHED, WORKED, node(22, "c10d::allreduce_", 4), node(23, "gloo:all_reduce", 5, [tensor(6)])]
    trace = converted(events, *nodes)
    assert [size_of(one) for one in trace.nodes if one.type == NodeType.COLLECTIVE] == [400, 32]


def test_operators_inside_a_work_are_part_of_it() -> None:
    trace = converted(
        [step(7, 0, 40), LAUNCH, work(12, 30, 3), event("aten::add_", 15, 20, GLOO)], LAUNCHED, WORKED
    )
    assert "aten::add_" not in {one.name for one in trace.nodes}


def test_works_without_a_number_get_launches_in_the_order_of_time() -> None:
    events = [step(7, 0, 60), LAUNCH, event("c10d::allreduce_", 14, 15, record=4)]
    events += [
        event(
            "gloo:all_reduce",
            start,
            start + 5,
            GLOO,
            "user_annotation",
            Input_Dims=[[9]],
            Input_type=["float"],
        )
        for start in (12, 18)
    ]
    found = [row for row in rows(converted(events)) if row[0] == "gloo:all_reduce"]
    assert [row[3] for row in found] == [
        {"c10d::allreduce_@10"},
        {"c10d::allreduce_@14", "gloo:all_reduce@12"},
    ]


def test_a_work_without_a_launch_is_a_finding() -> None:
    trace = converted([step(7, 0, 40), work(12, 18, 3)], WORKED, rules=(Rule.UNKNOWN_LAUNCH,))
    assert [row[3] for row in rows(trace) if row[0] == "gloo:all_reduce"] == [set()]


def test_a_work_without_a_size_is_a_finding() -> None:
    converted([step(7, 0, 40), LAUNCH, work(12, 18, 3)], rules=(Rule.UNKNOWN_SIZE,))


def test_an_event_that_leaves_its_caller_is_cut() -> None:
    trace = converted([event("a", 0, 10), event("b", 5, 15)], rules=(Rule.OVERLAP,))
    assert [row[:3] for row in rows(trace)] == [("a", 0, 5), ("b", 5, 10)]


def kernel(name: str, start: float, end: float, stream: int, correlation: int, **args: Any) -> dict[str, Any]:
    more = {"stream": stream, "device": 0, "correlation": correlation, **args}
    return event(name, start, end, stream, "kernel", **more)


def runtime(name: str, start: float, end: float, correlation: int) -> dict[str, Any]:
    return event(name, start, end, MAIN, "cuda_runtime", correlation=correlation)


NCCL = {
    "Collective_name": "allreduce",
    "In_msg_nelems": 256,
    "Out_msg_nelems": 256,
    "dtype": "BFloat16",
    "Process_Group_Name": "7",
}


REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"


def test_kernels_of_nccl_are_communications() -> None:
    """The stream of the matrix product waits for NCCL's stream, and the host for both."""
    trace = converted([
        step(7, 0, 60),
        runtime("cudaLaunchKernelExC", 2, 4, 11), kernel(REDUCE, 5, 25, 20, 11, **NCCL),
        runtime("cudaLaunchKernel", 6, 7, 12), kernel("gemm", 26, 40, 7, 12),
        runtime("cudaStreamSynchronize", 8, 41, 13),
    ])  # fmt: skip
    found = rows(trace)
    (communication,) = [one for one in trace.nodes if one.type == NodeType.COLLECTIVE]
    assert (kind_of(communication), size_of(communication)) == ("ALL_REDUCE", 512)
    assert text_of(communication, "pg_name") == "7"
    assert value_of(communication, "is_cpu_op") is False
    gemm = next(row for row in found if row[0] == "gemm")
    assert gemm == ("gemm", 26, 40, {"cudaLaunchKernel@6", f"{REDUCE}@5"})
    synchronised = next(one for one in trace.nodes if one.name == "cudaStreamSynchronize")
    assert (synchronised.start_time_micros, number_of(synchronised, "wait_us")) == (40, 32)


@pytest.mark.parametrize(
    ("collective", "bytes", "kind"),
    [
        ("_allgather_base", 512, Collective.ALL_GATHER),
        ("_reduce_scatter_base", 512, Collective.REDUCE_SCATTER),
        ("broadcast", 512, Collective.BROADCAST),
        ("all_to_allv", 512, Collective.ALL_TO_ALL),
        ("send", 512, NodeType.SEND),
        ("recv", 64, NodeType.RECV),
        ("barrier", 0, Collective.BARRIER),
    ],
)
def test_kinds_and_bytes_of_nccl(collective: str, bytes: int, kind: Collective | NodeType) -> None:
    args = {**NCCL, "Collective_name": collective, "Out_msg_nelems": 32, "Src_Rank": 1, "Dst_Rank": 1}
    launched = [
        runtime("cudaLaunchKernelExC", 2, 4, 11),
        kernel("ncclDevKernel_SendRecv(x)", 5, 25, 20, 11, **args),
    ]
    found = next(one for one in converted([step(7, 0, 60), *launched]).nodes if "nccl" in one.name)
    assert (kind_of(found), size_of(found)) == (kind.name, bytes)
    if isinstance(kind, NodeType):
        ends = (value_of(found, "comm_src"), value_of(found, "comm_dst"))
        assert ends == ((0, 1) if kind is NodeType.SEND else (1, 0))


@pytest.mark.parametrize("args", [{}, {**NCCL, "Collective_name": "coalesced"}], ids=["none", "coalesced"])
def test_a_kernel_of_nccl_without_its_collective_is_a_finding(args: dict[str, Any]) -> None:
    """torch names no collective for batches of sends and receives. Old ones name none at all."""
    launched = [
        runtime("cudaLaunchKernelExC", 2, 4, 11),
        kernel("ncclDevKernel_SendRecv(x)", 5, 25, 20, 11, **args),
        kernel("gemm", 26, 40, 7, 12),
    ]
    conversion = convert(host(), kineto(step(7, 0, 60), *launched), 0)
    (finding,) = [one for one in conversion.findings if one.rule is Rule.UNKNOWN_COLLECTIVE]
    assert "ncclDevKernel_SendRecv(x)" in finding.text
    assert "counts as a computation" in finding.text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("c10d::allreduce_", Collective.ALL_REDUCE),
        ("c10d::allreduce_coalesced_", Collective.ALL_REDUCE),
        ("c10d::allgather_into_tensor_coalesced_", Collective.ALL_GATHER),
        ("c10d::reduce_scatter_tensor_coalesced_", Collective.REDUCE_SCATTER),
        ("c10d::alltoall_base_", Collective.ALL_TO_ALL),
        ("c10d::monitored_barrier_", Collective.BARRIER),
        ("c10d::recv_any_source_", NodeType.RECV),
        ("gloo:sparse_all_reduce", Collective.ALL_REDUCE),
        ("c10d::unheard_of", None),
    ],
)
def test_kinds_by_name(name: str, kind: Collective | NodeType | None) -> None:
    assert kind_named(name) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            Collective.REDUCE_SCATTER,
        ),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", Collective.ALL_GATHER),
        ("void gemm", None),
    ],
)
def test_kinds_by_kernel(name: str, kind: Collective | None) -> None:
    assert kind_of_kernel(name) is kind
