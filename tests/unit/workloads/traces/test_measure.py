"""Tests of the count of values in encoded messages, and of files that would take much memory."""

from __future__ import annotations

import gzip
import random
from typing import Any

import pytest
from tests.cases import cases
from tests.unit.workloads.traces.build import collective, comp, trace

from convoy_workloads.traces.findings import InvalidTrace, Rule
from convoy_workloads.traces.wire import reader
from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from convoy_workloads.traces.wire.content import decompress
from convoy_workloads.traces.wire.limits import Limits
from convoy_workloads.traces.wire.measure import values_of_metadata, values_of_node
from convoy_workloads.traces.wire.plain import varint
from convoy_workloads.traces.wire.reader import decode
from convoy_workloads.traces.wire.writer import encode

MOST = 10**9
LISTS = [one.name for one in AttributeProto.DESCRIPTOR.fields if one.name.endswith("_list")]


def attribute(field: str, values: list[Any]) -> AttributeProto:
    found = AttributeProto(name="a")
    getattr(found, field).values.extend(values)
    return found


def listed(field: str, count: int) -> list[Any]:
    value = {"string_list": "x", "bytes_list": b"x", "bool_list": True}.get(field, 300)
    return [value] * count


def test_every_list_of_the_format_is_tested() -> None:
    assert len(LISTS) == 15


@pytest.mark.parametrize("field", LISTS)
def test_the_elements_of_each_list_are_counted(field: str) -> None:
    node = Node(id=300, name="n" * 200, attr=[attribute(field, listed(field, 7)), AttributeProto(name="b")])
    assert values_of_node(node.SerializeToString(), MOST) == 9
    metadata = GlobalMetadata(version="v", attr=node.attr)
    assert values_of_metadata(metadata.SerializeToString(), MOST) == 9


def test_dependencies_and_attributes_are_counted() -> None:
    node = Node(id=1, ctrl_deps=[1, 300, 2**63], data_deps=[0, 0], start_time_micros=2**60)
    node.attr.extend(collective(1).attr[:2])
    assert values_of_node(node.SerializeToString(), MOST) == 7
    # Dependencies may stand in the file one by one, too.
    assert values_of_node(b"\x20\x01\x20\xac\x02\x28\x07", MOST) == 3


def test_counting_stops_at_the_bound() -> None:
    assert values_of_node(b"\x52\x00" * 10**6, 10) == 11


def test_random_bytes_are_counted_to_the_end() -> None:
    chance = random.Random(3)
    for _ in range(cases(500)):
        data = chance.randbytes(chance.randint(0, 40))
        assert 0 <= values_of_node(data, MOST) <= len(data)


def frame(body: bytes) -> bytes:
    return varint(len(body)) + body


ATTRIBUTES, NUMBERS = b"\x52\x00" * 10_000, b"\x2a" + frame(b"\x01" * 20_000)
ELEMENTS = b"\x52" + frame(b"\x52" + frame(b"\x0a" + frame(b"\x01" * 20_000)))
TEXTS = b"\x52" + frame(b"\xf2\x01" + frame(b"\x0a\x00" * 10_000))


@pytest.mark.parametrize(
    "body", [ATTRIBUTES, NUMBERS, ELEMENTS, TEXTS], ids=["attr", "deps", "list", "texts"]
)
def test_a_large_message_with_many_values_is_not_decoded(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded, a message of 16 MiB would take almost a gigabyte."""
    monkeypatch.setattr(reader, "Node", lambda: pytest.fail("the node is decoded"))
    found = decode(b"\x00" + frame(body), 3, Limits(list_length=9999)).findings
    assert [(one.rule, one.rank, one.offset) for one in found] == [(Rule.LONG_LIST, 3, 1)]


def test_large_metadata_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "GlobalMetadata", lambda: pytest.fail("the metadata is decoded"))
    reading = decode(frame(b"\x12\x00" * 10_000) + encode(trace(comp(1)))[8:], 3, Limits(list_length=9999))
    assert [(one.rule, one.offset) for one in reading.findings] == [(Rule.LONG_LIST, 0)]
    assert len(reading.trace.nodes) == 1


def test_a_long_text_in_the_metadata_is_a_finding() -> None:
    one = trace(comp(1))
    one.metadata.attr.append(AttributeProto(name="process_groups", string_val="x" * 50))
    found = decode(encode(one), limits=Limits(metadata_length=49)).findings
    assert [one.rule for one in found] == [Rule.LONG_STRING]
    assert found[0].text.startswith("the first message: attr[0].string_val has 50 characters")


@pytest.mark.parametrize("size", [250, 300], ids=["small", "counted"])
def test_the_values_of_the_whole_file_are_bounded(size: int) -> None:
    """Each node is small. Nodes after the bound are not read."""
    data = b"\x00" + frame(b"\x52\x00" * size) * 100
    reading = decode(data, limits=Limits(values=10 * size + 100))
    assert [one.rule for one in reading.findings] == [Rule.TOO_MANY_VALUES]
    assert len(reading.trace.nodes) in {9, 10}


def test_a_file_that_expands_a_thousandfold_is_refused() -> None:
    """17 KB of gzip would be 17 MiB of attributes."""
    bomb = gzip.compress(b"\x00" + frame(b"\x52\x00" * 250) * 30_000)
    assert len(bomb) < 50_000
    with pytest.raises(
        InvalidTrace, match="TooLarge: the content has more than 200 bytes for each compressed"
    ):
        decompress(bomb)
    assert len(decompress(gzip.compress(b"\0" * 2**20))) == 2**20
