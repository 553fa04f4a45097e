"""Tests of kernels of NCCL that do not show their collective: the operators that asked for them show it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.workloads.traces.torch_docs import MAIN, event, host, kineto, node, step, tensor

from convoy_workloads.traces.attributes import value_of
from convoy_workloads.traces.convert.convert import Conversion, convert
from convoy_workloads.traces.findings import Rule
from convoy_workloads.traces.replay import measured_span, replay
from convoy_workloads.traces.trace import NodeType, kind_of, size_of
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.chakra_pb2 import Node

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def kernel(name: str, start: float, end: float, stream: int, launch: int, **args: Any) -> dict[str, Any]:
    return event(name, start, end, stream, "kernel", stream=stream, device=0, correlation=launch, **args)


def launched(start: float, correlation: int, begin: float, end: float) -> list[dict[str, Any]]:
    """Return the launch of a kernel of NCCL, and the kernel, which shows nothing of its collective."""
    launch = event("cudaLaunchKernelExC", start, start + 1, MAIN, "cuda_runtime", correlation=correlation)
    return [launch, kernel(KERNEL, begin, end, 20, correlation)]


def conversion(events: list[dict[str, Any]], *nodes: dict[str, Any], **more: Any) -> Conversion:
    """Return the conversion of these events. The trace is valid, and its replay gives the measured times."""
    found = convert(host(*nodes), kineto(step(7, 0, 90), *events, rank=1, **more))
    assert check_trace(found.trace) == []
    assert replay(found.trace).span == measured_span(found.trace)
    return found


def communications(found: Conversion) -> list[Node]:
    return [one for one in found.trace.nodes if one.name == KERNEL]


def ends(one: Node) -> tuple[Any, ...]:
    names = ("comm_src", "comm_dst", "comm_tag", "pg_name")
    return (kind_of(one), size_of(one), *(value_of(one, name) for name in names))


ALL_TO_ALL = node(5, "c10d::alltoall_base_", 2, [tensor(1, 100), tensor(2, 60), "<Object>", [], [], -1])


def test_an_all_to_all_is_known_by_its_operator() -> None:
    asked = event("c10d::alltoall_base_", 2, 9, record=2)
    found = conversion([asked, *launched(4, 11, 10, 30)], ALL_TO_ALL)
    (one,) = communications(found)
    assert (one.type, kind_of(one), size_of(one)) == (NodeType.COLLECTIVE, "ALL_TO_ALL", 240)
    assert value_of(one, "pg_name") == "0"
    assert found.findings == []


def test_an_all_to_all_is_known_by_the_annotation_of_nccl() -> None:
    args = {"Input_Dims": [[60]], "Input_type": ["float"]}
    asked = event("nccl:all_to_all", 2, 9, MAIN, "user_annotation", **args)
    found = conversion([asked, *launched(4, 11, 10, 30)])
    assert [(kind_of(one), size_of(one)) for one in communications(found)] == [("ALL_TO_ALL", 240)]


def test_an_operator_with_two_kernels_asked_for_both() -> None:
    asked = event("c10d::alltoall_base_", 2, 9, record=2)
    events = [asked, *launched(4, 11, 10, 30), *launched(6, 12, 30, 40)]
    assert [kind_of(one) for one in communications(conversion(events, ALL_TO_ALL))] == ["ALL_TO_ALL"] * 2


BATCH = [event("c10d::send", 2, 3, record=2), event("c10d::recv_", 4, 5, record=3), *launched(8, 11, 10, 30)]
SEND = node(5, "c10d::send", 2, [[tensor(1, 50)], "<Object>", 0, 3])
RECV = node(6, "c10d::recv_", 3, [[tensor(2, 70)], "<Object>", 0, 4])


def test_a_batch_becomes_its_messages() -> None:
    found = conversion(BATCH, SEND, RECV)
    assert [ends(one) for one in communications(found)] == [
        ("SEND", 200, 1, 0, 3, "0"),
        ("RECV", 280, 0, 1, 4, "0"),
    ]
    assert {(one.start_time_micros, one.duration_micros) for one in communications(found)} == {(10, 20)}
    assert found.findings == []


def test_the_rank_of_a_message_is_that_of_the_job() -> None:
    group = {"pg_name": "0", "pg_size": 2, "ranks": [6, 1]}
    document = {
        **kineto(step(7, 0, 90), *BATCH, rank=1),
        "distributedInfo": {"rank": 1, "pg_config": [group]},
    }
    found = convert(host(SEND, RECV), document)
    assert [ends(one)[1:4] for one in communications(found)] == [(200, 1, 6), (280, 6, 1)]


def test_a_batch_is_known_by_the_kineto_trace_alone() -> None:
    args = {"Input_Dims": [[[50]], [], [], []], "Input_type": ["TensorList", "", "Scalar", "Scalar"]}
    asked = event("c10d::send", 2, 3, Concrete_Inputs=["", "", "0", "3"], **args)
    found = convert(host(), kineto(step(7, 0, 90), asked, *launched(8, 11, 10, 30), rank=1))
    assert [ends(one) for one in communications(found)] == [("SEND", 0, 1, 0, 3, "0")]
    assert [one.rule for one in found.findings] == [Rule.UNKNOWN_SIZE]


def test_what_follows_a_batch_depends_on_each_message() -> None:
    after = event("cudaLaunchKernel", 31, 32, MAIN, "cuda_runtime", correlation=12)
    found = conversion([*BATCH, after, kernel("gemm", 35, 40, 20, 12)], SEND, RECV)
    messages = {one.id for one in communications(found)}
    gemm = next(one for one in found.trace.nodes if one.name == "gemm")
    assert messages <= set(gemm.data_deps)
    slow_send = replay(found.trace, lambda one: 100.0 if kind_of(one) == "SEND" else 1.0)
    assert slow_send.span >= 100 + 5


@pytest.mark.parametrize(
    ("events", "nodes"),
    [
        # The other rank is unknown.
        ([event("c10d::send", 2, 3), *launched(8, 11, 10, 30)], []),
        ([event("c10d::send", 2, 3, record=2), *launched(8, 11, 10, 30)], [node(5, "c10d::send", 2, [])]),
        # An operator that is no message stands among them.
        ([*BATCH, event("c10d::barrier", 6, 7)], [SEND, RECV]),
        # The messages belong to the previous launch.
        ([event("c10d::send", 2, 3, record=2), *launched(4, 9, 5, 6), *launched(8, 11, 10, 30)], [SEND]),
        # Another thread sent them.
        ([event("c10d::send", 2, 3, 999, record=2), *launched(8, 11, 10, 30)], [SEND]),
    ],
    ids=["no-arguments", "no-rank", "barrier", "launch-before", "thread"],
)
def test_a_kernel_that_stays_unknown_is_a_computation(
    events: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> None:
    found = conversion(events, *nodes)
    assert kind_of(communications(found)[-1]) == "COMP"
    assert Rule.UNKNOWN_COLLECTIVE in {one.rule for one in found.findings}


def test_many_messages_of_one_kernel_are_bounded() -> None:
    count = 257
    sends = [event("c10d::send", 2 + one / 100, 2 + one / 100, record=one + 2) for one in range(count)]
    nodes = [node(5 + one, "c10d::send", one + 2, SEND["inputs"]["values"]) for one in range(count)]
    found = conversion([*sends, *launched(8, 11, 10, 30)], *nodes)
    assert [kind_of(one) for one in communications(found)] == ["COMP"]


def test_the_same_finding_of_many_kernels_is_one_with_their_number() -> None:
    events = [one for at in range(50) for one in launched(2 + at, 11 + at, 2.5 + at, 3 + at)]
    (finding,) = [one for one in conversion(events).findings if one.rule is Rule.UNKNOWN_COLLECTIVE]
    assert finding.text.endswith("counts as a computation (50 times)")
    assert len(finding.text) < 200
