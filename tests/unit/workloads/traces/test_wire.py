"""Tests of reading and writing Chakra files."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest
from tests.cases import cases
from tests.unit.workloads.traces.build import FIXTURES, collective, comp, send, trace

from convoy_workloads.traces.findings import InvalidTrace, Rule
from convoy_workloads.traces.trace import Trace
from convoy_workloads.traces.wire.chakra_pb2 import IOInfo, Node
from convoy_workloads.traces.wire.content import decompress, load
from convoy_workloads.traces.wire.limits import Limits
from convoy_workloads.traces.wire.reader import decode, rank_in_name, read, read_whole
from convoy_workloads.traces.wire.writer import encode, write

SAMPLES = sorted((FIXTURES / "astra_sim").glob("*.et*"))


def sample() -> Trace:
    nodes = [comp(7, num_ops=3), collective(8, deps=(7,), group="0"), send(9, 0, 1, deps=(8,))]
    nodes[0].inputs.CopyFrom(IOInfo(values="[1]", shapes="[[]]", types="['Int']"))
    return trace(*nodes)


def rules(data: bytes, limits: Limits | None = None) -> list[tuple[Rule, int | None]]:
    reading = decode(data, 3, limits or Limits())
    assert all(one.rank == 3 for one in reading.findings)
    return [(one.rule, one.offset) for one in reading.findings]


def first_bytes(data: bytes) -> list[int]:
    """Return the byte at which each message of a file with short messages begins."""
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += 1 + data[position]
    return found


@pytest.mark.parametrize("data", [b'{\n "schema": "1.0.1", "nodes": []}', b'{"traceEvents": []}', b"[{}]"])
def test_json_is_named_as_such(data: bytes) -> None:
    (found,) = decode(data * 100, 3).findings
    assert (found.rule, found.rank, found.offset) == (Rule.MALFORMED, 3, 0)
    assert "the file is JSON" in found.text
    assert "convoy trace convert" in found.text


def test_text_is_named_as_such_in_one_line() -> None:
    (found,) = decode("Fünf Zeilen Text.\n".encode() * 100, 3).findings
    assert (found.rule, found.rank, found.offset) == (Rule.MALFORMED, 3, 0)
    assert found.text == "the file is text, not a Chakra trace"


def test_a_trace_that_begins_as_json_or_text_does_is_read() -> None:
    one = sample()
    one.metadata.version = "v" * (ord("{") - 2)
    data = encode(one)
    assert data[:1] == b"{"
    assert decode(data).findings == []


def test_samples_are_there() -> None:
    assert len(SAMPLES) == 12


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_upstreams_samples_are_encoded_again_to_the_byte(path: Path) -> None:
    trace = read_whole(path)
    assert trace.rank == int(path.name.split(".")[1])
    assert trace.nodes
    assert encode(trace) == decompress(path.read_bytes())


def test_the_wire_contract() -> None:
    """Upstream's readers rely on these bytes: tag, length and field of each value."""
    one = Node(id=1, name="n", type=7, ctrl_deps=[2], data_deps=[3], start_time_micros=4, duration_micros=5)
    one.attr.extend(collective(0).attr[:2])
    is_cpu_op = b"\x52\x0e" + b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00"
    comm_type = b"\x52\x0d" + b"\x0a\x09comm_type" + b"\x48\x00"
    body = b"\x08\x01\x12\x01n\x18\x07\x22\x01\x02\x2a\x01\x03\x30\x04\x38\x05" + is_cpu_op + comm_type
    metadata = b"\x07\x0a\x050.0.4"
    assert encode(trace(one)) == metadata + bytes([len(body)]) + body


@pytest.mark.parametrize("name", ["job.3.et", "job.3.et.gz"])
def test_a_trace_comes_back_from_its_file(tmp_path: Path, name: str) -> None:
    written, path = sample(), tmp_path / name
    assert write(written, path) == path.stat().st_size
    found = read_whole(path)
    assert (found.rank, found.nodes, found.metadata) == (3, written.nodes, written.metadata)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_the_same_trace_gives_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("a.et.gz", "b.et.gz"):
        write(sample(), tmp_path / name)
    assert (tmp_path / "a.et.gz").read_bytes() == (tmp_path / "b.et.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "job.0.et"
    path.mkdir()
    with pytest.raises(OSError):
        write(sample(), path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "rank"),
    [("a.0.et", 0), ("a.b.17.et.gz", 17), ("a.et", None), ("a.x.et", None), ("a.1.json", None)],
)
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    assert rank_in_name(Path(name)) == rank


WHOLE = encode(sample())
BEGINS = first_bytes(WHOLE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [(Rule.TRUNCATED, 0)]),
        (b"\x80", [(Rule.TRUNCATED, 0)]),
        (b"\xff" * 20, [(Rule.MALFORMED, 0)]),
        (WHOLE[:-1], [(Rule.TRUNCATED, BEGINS[-1])]),
        (WHOLE + b"\x80\x80", [(Rule.TRUNCATED, len(WHOLE))]),
        (WHOLE + b"\x05\x00", [(Rule.TRUNCATED, len(WHOLE))]),
        # A name of 127 bytes in a message of 2, and a name that is no UTF-8.
        (WHOLE + b"\x02\x12\x7f", [(Rule.MALFORMED, len(WHOLE))]),
        (WHOLE + b"\x03\x12\x01\xff", [(Rule.MALFORMED, len(WHOLE))]),
        (WHOLE + b"\x00", [(Rule.EMPTY_MESSAGE, len(WHOLE))]),
        (b"\x02\x0a\x7f" + WHOLE[BEGINS[1] :], [(Rule.MALFORMED, 0)]),
        (b"\x80\x80\x80\x80\x08" + WHOLE, [(Rule.TOO_LARGE, 0)]),
    ],
    ids=[
        "empty",
        "length",
        "long-length",
        "cut",
        "length-at-end",
        "short",
        "name",
        "text",
        "void",
        "head",
        "huge",
    ],
)
def test_a_damaged_file_is_a_finding_with_its_byte(data: bytes, expected: list[tuple[Rule, int]]) -> None:
    assert rules(data) == expected


def test_nodes_beside_a_damaged_one_are_read() -> None:
    """A message with a wrong field leaves the next message where it was."""
    data = WHOLE[: BEGINS[2]] + b"\x02\x12\x7f" + WHOLE[BEGINS[2] :]
    reading = decode(data)
    assert [one.id for one in reading.trace.nodes] == [7, 8, 9]
    assert [(one.rule, one.offset) for one in reading.findings] == [(Rule.MALFORMED, BEGINS[2])]


@pytest.mark.parametrize(
    ("limits", "rule", "nodes"),
    [
        (Limits(nodes=2), Rule.TOO_MANY_NODES, 2),
        (Limits(message_bytes=20), Rule.TOO_LARGE, 0),
        (Limits(string_length=5), Rule.LONG_STRING, 0),
        (Limits(list_length=2), Rule.LONG_LIST, 1),
        (Limits(list_length=0), Rule.LONG_LIST, 0),
    ],
)
def test_bounds(limits: Limits, rule: Rule, nodes: int) -> None:
    few = comp(7)
    few.name = "n"
    reading = decode(encode(trace(few, collective(8), collective(9))), limits=limits)
    assert {one.rule for one in reading.findings} == {rule}
    assert len(reading.trace.nodes) == nodes


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "x" * 50}, "name"),
        ({"inputs": IOInfo(shapes="x" * 50)}, "inputs.shapes"),
        ({"attr": [{"name": "a", "doc_string": "x" * 50}]}, "attr[0].doc_string"),
        ({"attr": [{"name": "a", "bytes_val": b"x" * 50}]}, "attr[0].bytes_val"),
        ({"attr": [{"name": "a", "string_list": {"values": ["", "x" * 50]}}]}, "attr[0].string_list"),
    ],
)
def test_a_long_text_is_named_by_its_field(change: dict[str, object], field: str) -> None:
    reading = decode(encode(trace(Node(id=4, **change))), limits=Limits(string_length=49))
    assert [(one.rule, one.node) for one in reading.findings] == [(Rule.LONG_STRING, 4)]
    assert reading.findings[0].text.startswith(f"{field} has 50 ")


def test_findings_of_one_rule_are_bounded() -> None:
    reading = decode(WHOLE + b"\x02\x12\x7f" * 1000)
    assert len(reading.findings) == 101
    assert "900 more" in reading.findings[-1].text


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (gzip.compress(WHOLE)[:-9], Rule.TRUNCATED),
        (gzip.compress(WHOLE)[:10] + b"\xff" * 40, Rule.MALFORMED),
        (gzip.compress(WHOLE) + b"garbage", Rule.MALFORMED),
        (gzip.compress(WHOLE)[:-8] + b"12345678", Rule.MALFORMED),
        (gzip.compress(b"0" * 5000), Rule.TOO_LARGE),
        (b"0" * 5000, Rule.TOO_LARGE),
    ],
    ids=["cut", "damaged", "more", "checksum", "large", "plain"],
)
def test_damaged_and_huge_content(data: bytes, rule: Rule) -> None:
    with pytest.raises(InvalidTrace) as error:
        decompress(data, Limits(decompressed_bytes=4000))
    assert [one.rule for one in error.value.findings] == [rule]


def test_a_gzip_file_may_have_members_and_padding() -> None:
    assert decompress(gzip.compress(b"ab") + gzip.compress(b"cd") + b"\0" * 9) == b"abcd"


def test_a_gzip_bomb_takes_little_memory() -> None:
    bomb = gzip.compress(b"\0" * 2**25)
    tracemalloc.start()
    with pytest.raises(InvalidTrace, match="TooLarge"):
        decompress(bomb, Limits(decompressed_bytes=2**20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match=r"absent\.0\.et: Unreadable: no such file"):
        load(tmp_path / "absent.0.et")
    with pytest.raises(InvalidTrace, match="not a file"):
        load(tmp_path)
    (tmp_path / "big.0.et").write_bytes(b"0" * 11)
    with pytest.raises(InvalidTrace, match="TooLarge"):
        load(tmp_path / "big.0.et", Limits(file_bytes=10))
    (tmp_path / "cut.0.et").write_bytes(WHOLE[:-1])
    with pytest.raises(InvalidTrace, match=rf"cut\.0\.et: Truncated \(rank 0, byte {BEGINS[-1]}\)"):
        read_whole(tmp_path / "cut.0.et")
    assert len(read(tmp_path / "cut.0.et").trace.nodes) == 2


def test_random_damage_is_read_to_the_end() -> None:
    """Damaged bytes give nodes and findings, and never another error."""
    chance = random.Random(5)
    for _ in range(cases(1000)):
        data = bytearray(WHOLE)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        reading = decode(bytes(data[: chance.randint(0, len(data))]))
        assert len(reading.trace.nodes) <= len(data)
        # A trace that was read can be written again.
        again = decode(encode(reading.trace))
        assert again.trace.nodes == reading.trace.nodes
