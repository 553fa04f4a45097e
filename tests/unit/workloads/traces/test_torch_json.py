"""Tests of the bounds and checks of torch's JSON traces: a foreign file gives findings, no other error."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.unit.workloads.traces.torch_docs import event, host, kineto, node, step, tensor, work

from convoy_workloads.traces.attributes import text_of
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.findings import InvalidTrace, Rule
from convoy_workloads.traces.replay import replay
from convoy_workloads.traces.torch_json.document import load_json, parse
from convoy_workloads.traces.torch_json.names import escape_names
from convoy_workloads.traces.trace import size_of
from convoy_workloads.traces.validate.all_ranks import named_groups
from convoy_workloads.traces.wire.limits import Limits
from convoy_workloads.traces.wire.reader import decode
from convoy_workloads.traces.wire.writer import encode

EVENTS = [
    step(7, 0, 40),
    event("c10d::allreduce_", 10, 13, record=2),
    work(12, 30, 3),
    event("aten::mm", 20, 25, record=4),
]
NODES = [
    node(20, "c10d::allreduce_", 2, [[tensor(5, 100)]]),
    node(21, "gloo:all_reduce", 3, [tensor(5, 100)]),
    node(22, "aten::mm", 4, [tensor(6)], [tensor(7)]),
]


@pytest.mark.parametrize(
    ("data", "rule", "text"),
    [
        (b'{"a": ', Rule.MALFORMED, "line 1"),
        (b'{"a": "\xff"}', Rule.MALFORMED, "not UTF-8"),
        (b"[1]", Rule.MALFORMED, "must hold a JSON object, not list"),
        (b'{"a": NaN}', Rule.MALFORMED, "NaN is no JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", Rule.MALFORMED, "4300 digits"),
        (b"[" * 100_000, Rule.TOO_DEEP, "200 levels"),
        (b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", Rule.TOO_DEEP, "200 levels"),
    ],
    ids=["cut", "bytes", "list", "nan", "digits", "endless", "deep"],
)
def test_text_that_is_no_trace(data: bytes, rule: Rule, text: str) -> None:
    with pytest.raises(InvalidTrace) as error:
        parse(data, "job/host.0.json")
    (found,) = error.value.findings
    assert found.rule is rule
    assert text in found.text
    assert str(error.value).startswith("job/host.0.json: ")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (b'say "hi"', 'say "hi"'),
        (b'{"device": "cpu"}(12): run', '{"device": "cpu"}(12): run'),
        (b"a\nb\tc\x01", "a\nb\tc\x01"),
        (rb"torch\cuda\init.py", r"torch\cuda\init.py"),
        (b"cfg \xff", "cfg \ufffd"),
        (rb"\u00e9 \"x\"", 'é "x"'),
    ],
    ids=["quotes", "dict", "control", "windows", "bytes", "escaped"],
)
def test_names_that_torch_does_not_escape(name: bytes, read: str) -> None:
    """The lines have the layouts of the two writers of torch 2.13."""
    host_lines = (
        b'{"nodes": [\n{"id": 4, "name": "%s", "ctrl_deps": 3,\n"attrs": [{"name": "tid", "type": "u"}]},\n'
    )
    kineto_lines = (
        b'{"ph": "X",\n"name": "%s",\n"pid": 1}, {"args": {\n"name": "%s"\n}}, {"name": "x\\y"\n}]}'
    )
    found = parse(host_lines % name + kineto_lines % (name, name))["nodes"]
    assert found[0] == {"id": 4, "name": read, "ctrl_deps": 3, "attrs": [{"name": "tid", "type": "u"}]}
    assert found[1:] == [{"ph": "X", "name": read, "pid": 1}, {"args": {"name": read}}, {"name": r"x\y"}]


def test_the_place_of_an_error_is_that_in_the_file() -> None:
    data = b'{"name": "a "b"",\n"x": 1,\n}'
    with pytest.raises(InvalidTrace) as error:
        parse(data)
    assert error.value.findings[0].offset == data.index(b'b"')


def test_a_compressed_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "host.0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(host(*NODES)).encode()))
    assert load_json(path) == host(*NODES)
    with pytest.raises(InvalidTrace, match="TooLarge"):
        load_json(path, Limits(decompressed_bytes=100))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ts": -1}, "traceEvents[1].ts: must be a time of at least 0 microseconds, not -1"),
        ({"ts": "3"}, "traceEvents[1].ts: must be a number, not '3'"),
        ({"ts": True}, "traceEvents[1].ts: must be a number, not True"),
        ({"ts": 1e300}, "traceEvents[1].ts: must be a time"),
        ({"ts": float("inf")}, "traceEvents[1].ts: must be a time"),
        ({"dur": None}, "traceEvents[1].dur: must be a number, not None"),
        ({"dur": -0.5}, "traceEvents[1].dur: must be a time"),
        ({"name": 5}, "traceEvents[1].name: must be a text, not 5"),
        ({"tid": [1]}, "traceEvents[1].tid: must name a thread"),
    ],
)
def test_an_event_with_a_wrong_field_is_left_out(change: dict[str, Any], text: str) -> None:
    conversion = convert(host(), kineto(EVENTS[0], {**EVENTS[1], **change}))
    assert [one.rule for one in conversion.findings] == [Rule.INVALID_FIELD]
    assert conversion.findings[0].text.startswith(text)
    assert [one.name for one in conversion.trace.nodes] == ["ProfilerStep#7"]


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [
        ({"id": -1}, Rule.INVALID_FIELD, "nodes[1].id: must be a whole number"),
        ({"id": 2**63}, Rule.INVALID_FIELD, "nodes[1].id: must be a whole number"),
        ({"id": 20}, Rule.DUPLICATE_ID, "nodes[1]: id 20 is taken"),
        ({"name": None}, Rule.INVALID_FIELD, "nodes[1].name: must be a text"),
        ({"attrs": [{"name": "tid", "value": "x"}]}, Rule.INVALID_FIELD, "nodes[1].attrs.tid: must be"),
    ],
)
def test_a_node_with_a_wrong_field_is_left_out(change: dict[str, Any], rule: Rule, text: str) -> None:
    conversion = convert(host(NODES[0], {**NODES[2], **change}), kineto(EVENTS[3]))
    assert [one.rule for one in conversion.findings] == [rule]
    assert conversion.findings[0].text.startswith(text)


@pytest.mark.parametrize(
    ("hosts", "kinetos", "text"),
    [
        ({}, kineto(*EVENTS), "no host trace of torch"),
        (host(), {}, "no Kineto trace of torch"),
        (host(), kineto(), "no event with a time"),
        (host(*[NODES[0]] * 11), kineto(*EVENTS), "nodes: more than 10"),
        (host(), kineto(*[EVENTS[0]] * 11), "traceEvents: more than 10"),
    ],
)
def test_no_trace_at_all(hosts: dict[str, Any], kinetos: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidTrace, match=text):
        convert(hosts, kinetos, limits=Limits(nodes=10))


def test_a_kernel_without_a_time_is_left_out() -> None:
    """CUPTI reports kernels at 0 for 0 us when it loses their times. A start at 0 would be decades ago."""
    lost = event("gemm", 0, 0, 7, "kernel", device=0, stream=7)
    conversion = convert(host(NODES[2]), kineto(EVENTS[3], lost))
    assert [one.name for one in conversion.trace.nodes] == ["aten::mm"]
    (found,) = conversion.findings
    assert (found.rule, found.text) == (
        Rule.INVALID_FIELD,
        "traceEvents[1].ts: must be the time of gemm, not 0",
    )


def test_a_host_trace_of_schema_1_0_1_is_read() -> None:
    """It has the same values as those of later schemas, in other places."""
    found, expected = (convert(one, kineto(*EVENTS)) for one in (flat_host(), host(*NODES)))
    assert found.findings == expected.findings == []
    assert found.trace.nodes == expected.trace.nodes
    assert size_of(found.trace.nodes[2]) == 400


def flat_host() -> dict[str, Any]:
    """Return NODES as a host trace of schema 1.0.1 has them."""
    flat = [
        {
            "name": one["name"], "id": one["id"], "parent": one["ctrl_deps"], "fw_parent": 0, "seq_id": -1,
            **{each["name"]: each["value"] for each in one["attrs"]}, "op_schema": "",
            "inputs": one["inputs"]["values"], "input_shapes": [], "input_types": [],
            "outputs": one["outputs"]["values"], "output_shapes": [], "output_types": [],
        }
        for one in NODES
    ]  # fmt: skip
    return {"schema": "1.0.1", "nodes": flat}


def test_a_wrong_field_of_schema_1_0_1_is_named() -> None:
    document = flat_host()
    document["nodes"][1]["rf_id"] = -4
    (found,) = convert(document, kineto(EVENTS[0], EVENTS[3])).findings
    assert found.text == "nodes[1].rf_id: must be a whole number of at least 0, not -4"


def test_another_schema_is_refused_with_those_that_are_read() -> None:
    with pytest.raises(
        InvalidTrace, match=r"schema 0\.9: the schemas that are read are 1\.0\.1, and 1\.0\.2"
    ):
        convert({"schema": "0.9", "nodes": [{"id": 1}]}, kineto(*EVENTS))


def test_operators_without_numbers_of_record_functions_are_a_finding() -> None:
    (found,) = convert(host(NODES[2]), kineto(event("aten::mm", 20, 25))).findings
    assert "no event has a `Record function id`" in found.text


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """JSON may hold such halves. No trace can: its texts are UTF-8."""
    half = "a\ud800b\udc00"
    group = {"pg_name": half, "ranks": [0, 1]}
    reduce = {"Collective name": "allreduce", "dtype": half, "Process Group Name": half, "correlation": 11}
    events = [
        event(half, 0, 9, record=2),
        {**event("ncclDevKernel_AllReduce_Sum_f32", 3, 4, 7, "kernel"), "args": reduce},
        {**event(half, 5, 6, 7, "kernel"), "tid": half},
    ]
    document = {**kineto(*events), "distributedInfo": {"pg_config": [group]}}
    document["convoy"] = {"threads": {"200": half}}
    trace = convert({**host(node(20, half, 2, [half], [half])), "schema": half}, document).trace
    again = decode(encode(trace))
    assert again.findings == []
    assert {one.name for one in again.trace.nodes} == {"a?b?", "ncclDevKernel_AllReduce_Sum_f32"}
    assert again.trace.nodes[0].inputs.values == '["a\\ud800b\\udc00"]'
    assert text_of(again.trace.metadata, "schema") == "a?b?"
    assert named_groups([again.trace]) == {"a?b?": (0, 1)}


def test_threads_are_bounded() -> None:
    with pytest.raises(InvalidTrace, match="more than 1000 threads"):
        convert(host(), kineto(*(event("a", 0, 1, tid) for tid in range(1001))))


def test_ranks_of_process_groups_are_bounded() -> None:
    """A hundred groups of almost a million ranks would take gigabytes."""
    groups = [{"pg_name": str(number), "pg_size": 999_999} for number in range(100)]
    document = {**kineto(*EVENTS), "distributedInfo": {"pg_config": groups}}
    metadata = convert(host(*NODES), document).trace.metadata
    assert len(text_of(metadata, "process_groups")) < 10_000_000


def test_the_rank_of_the_trace_counts() -> None:
    assert convert(host(), kineto(*EVENTS, rank=1), rank=5).trace.rank == 1
    unnamed = {**kineto(*EVENTS), "distributedInfo": None}
    assert convert(host(), unnamed, rank=5).trace.rank == 5


VALUES = [None, True, -1, 0, 3, 2**70, 1e308, "", "x", "\ud800", [], [[]], {}, {"a": 1}]


def test_random_wrong_values_give_findings_or_a_trace() -> None:
    """Each field of both traces gets a wrong value. What is converted can be replayed."""
    chance = random.Random(11)
    refused = 0
    for _ in range(cases(600)):
        documents = copy.deepcopy((host(*NODES), kineto(*EVENTS, convoy={"threads": {"200": "0"}})))
        for _ in range(chance.randint(1, 3)):
            places = list(_places(documents[chance.randrange(2)]))
            owner, key = chance.choice(places)
            owner[key] = copy.deepcopy(chance.choice(VALUES))
        try:
            trace = convert(*documents).trace
        except InvalidTrace as error:
            assert error.findings
            refused += 1
        else:
            assert replay(trace).span >= 0
            assert decode(encode(trace)).findings == []
    assert 0 < refused < cases(300)


def _places(value: Any) -> Any:
    """Yield the owner and key of each value inside lists and objects."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def test_names_are_escaped_in_linear_time() -> None:
    """With a quadratic search, these blanks would take longer than the test may."""
    data = b'{"name": "a"' + b" " * 1_000_000 + b"x"
    assert escape_names(data) == data
