"""Reads Chakra traces within bounds. A damaged file gives findings with the byte and the node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from convoy_workloads.traces.findings import Finding, Findings, InvalidTrace, Rule
from convoy_workloads.traces.trace import Trace
from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from convoy_workloads.traces.wire.content import load
from convoy_workloads.traces.wire.limits import LIMITS, Limits
from convoy_workloads.traces.wire.measure import values_of_metadata, values_of_node

M = TypeVar("M", bound=Message)

_VARINT_BYTES = 10
_SMALL_FRAME = 512
"""Maximum bytes of a message that is decoded without first counting its values."""
_BYTES_PER_VALUE = 64
"""Bytes of a small message that count as one value, for the lists in its attributes."""
_JSON = re.compile(rb"[{\[]\s*[\"{}\[\]](?:[\t\n\r\x20-\x7e]{60}|[\t\n\r\x20-\x7e]*\Z)")
"""The start of JSON. A trace may begin with a brace too, but has a tag that is no text soon after it."""
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{32,}")
"""Text. A trace has tags such as 0x08 and 0x12, which text does not have, in its first bytes."""
_TEXT_BYTES = 256
"""Number of bytes at the start of a file that show whether it is text."""
_NAME = re.compile(r"\.(\d{1,9})\.et(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Reading:
    """The readable part of a file, and the faults of the file."""

    trace: Trace
    findings: list[Finding]


def rank_in_name(path: Path) -> int | None:
    """Return the rank in a file's name, which is `PREFIX.RANK.et` by convention; None without one."""
    found = _NAME.search(path.name)
    return int(found[1]) if found else None


def read(path: Path, limits: Limits = LIMITS) -> Reading:
    """Read a trace, compressed or not. Raises InvalidTrace only if the content is not available at all."""
    return decode(load(path, limits), rank_in_name(path), limits)


def read_whole(path: Path, limits: Limits = LIMITS) -> Trace:
    """Return the trace in a file. Raises InvalidTrace if anything is wrong with the file."""
    reading = read(path, limits)
    if reading.findings:
        raise InvalidTrace(reading.findings, str(path))
    return reading.trace


def decode(data: bytes, rank: int | None = None, limits: Limits = LIMITS) -> Reading:
    """Return the trace in uncompressed bytes. A node that cannot be read is left out, with a finding.

    After a length that is wrong the next message cannot be found, so the reading stops there.
    """
    found = Findings()
    trace = Trace(rank=rank)
    if not data:
        return Reading(trace, [Finding(Rule.TRUNCATED, "the file is empty", rank, offset=0)])
    if _JSON.match(data):
        text = "the file is JSON, not a Chakra trace; `convoy trace convert` makes one of torch's JSON files"
        return Reading(trace, [Finding(Rule.MALFORMED, text, rank, offset=0)])
    if _TEXT.fullmatch(data[:_TEXT_BYTES]):
        return Reading(
            trace, [Finding(Rule.MALFORMED, "the file is text, not a Chakra trace", rank, offset=0)]
        )
    values = 0
    for number, (offset, view) in enumerate(_frames(data, rank, limits, found)):
        if number > limits.nodes:
            found.add(Finding(Rule.TOO_MANY_NODES, f"more than {limits.nodes} nodes", rank, offset=offset))
            break
        frame = bytes(view)
        if number == 0:
            trace.metadata = _metadata(frame, rank, offset, limits, found) or trace.metadata
            continue
        if not frame:
            text = f"message {number} is empty; upstream's readers stop at such a message"
            found.add(Finding(Rule.EMPTY_MESSAGE, text, rank, offset=offset))
        counted = 0 if len(frame) <= _SMALL_FRAME else values_of_node(frame, limits.list_length)
        if counted > limits.list_length:
            found.add(_long_list(f"message {number}", rank, offset, limits))
            continue
        node = _parse(Node(), frame, f"message {number} is no Node", rank, offset, found)
        if node is None:
            continue
        values += counted or (
            len(node.attr) + len(node.ctrl_deps) + len(node.data_deps) + len(frame) // _BYTES_PER_VALUE
        )
        if values > limits.values:
            text = f"more than {limits.values} attributes, dependencies and list elements"
            found.add(Finding(Rule.TOO_MANY_VALUES, text, rank, node.id, offset))
            break
        # Most messages are too small to hold a list or a text beyond the bounds.
        small = len(frame) <= min(limits.string_length, limits.list_length)
        if small or _bounded(node, rank, offset, limits, found):
            trace.nodes.append(node)
    return Reading(trace, found.result())


def _metadata(
    frame: bytes, rank: int | None, offset: int, limits: Limits, found: Findings
) -> GlobalMetadata | None:
    """Return the facts about the trace; None, with a finding, if they cannot be read or are too large."""
    what = "the first message"
    if values_of_metadata(frame, limits.list_length) > limits.list_length:
        found.add(_long_list(what, rank, offset, limits))
        return None
    metadata = _parse(GlobalMetadata(), frame, f"{what} is no GlobalMetadata", rank, offset, found)
    for number, one in enumerate(metadata.attr if metadata else ()):
        for name, value in _attribute(f"attr[{number}]", one):
            if len(value) > limits.metadata_length:
                most = limits.metadata_length
                text = f"{what}: {name} has {len(value)} characters; at most {most} are allowed"
                found.add(Finding(Rule.LONG_STRING, text, rank, offset=offset))
                return None
    return metadata


def _long_list(what: str, rank: int | None, offset: int, limits: Limits) -> Finding:
    text = f"{what} has more than {limits.list_length} attributes, dependencies and list elements"
    return Finding(Rule.LONG_LIST, text, rank, offset=offset)


def _frames(
    data: bytes, rank: int | None, limits: Limits, found: Findings
) -> Iterator[tuple[int, memoryview]]:
    """Yield each message with the byte at which its length begins. Stop at a length that is wrong."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        begin = position
        length = shift = 0
        while True:
            if position == len(data):
                found.add(Finding(Rule.TRUNCATED, "the file ends inside a length", rank, offset=begin))
                return
            if position - begin == _VARINT_BYTES:
                text = f"a length has more than {_VARINT_BYTES} bytes"
                found.add(Finding(Rule.MALFORMED, text, rank, offset=begin))
                return
            byte = data[position]
            length |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                break
        if length > limits.message_bytes:
            text = f"a message of {length} bytes; at most {limits.message_bytes} are allowed"
            found.add(Finding(Rule.TOO_LARGE, text, rank, offset=begin))
            return
        if length > len(data) - position:
            text = f"a message of {length} bytes, but only {len(data) - position} are left"
            found.add(Finding(Rule.TRUNCATED, text, rank, offset=begin))
            return
        yield begin, view[position : position + length]
        position += length


def _parse(message: M, frame: bytes, text: str, rank: int | None, offset: int, found: Findings) -> M | None:
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        found.add(Finding(Rule.MALFORMED, f"{text}: {error}", rank, offset=offset))
        return None
    return message


def _bounded(node: Node, rank: int | None, offset: int, limits: Limits, found: Findings) -> bool:
    """Return True if a node's lists and texts are within `limits`."""
    lists = (("ctrl_deps", node.ctrl_deps), ("data_deps", node.data_deps), ("attr", node.attr))
    for name, values in lists:
        if len(values) > limits.list_length:
            text = f"{name} has {len(values)} entries; at most {limits.list_length} are allowed"
            found.add(Finding(Rule.LONG_LIST, text, rank, node.id, offset))
            return False
    for name, value in _texts(node):
        if len(value) > limits.string_length:
            text = f"{name} has {len(value)} characters; at most {limits.string_length} are allowed"
            found.add(Finding(Rule.LONG_STRING, text, rank, node.id, offset))
            return False
    return True


def _texts(node: Node) -> Iterator[tuple[str, str | bytes]]:
    yield "name", node.name
    for name, info in (("inputs", node.inputs), ("outputs", node.outputs)):
        yield from _info(name, info)
    for number, one in enumerate(node.attr):
        yield from _attribute(f"attr[{number}]", one)


def _info(name: str, info: IOInfo) -> Iterator[tuple[str, str]]:
    yield from (
        (f"{name}.values", info.values),
        (f"{name}.shapes", info.shapes),
        (f"{name}.types", info.types),
    )


def _attribute(name: str, one: AttributeProto) -> Iterator[tuple[str, str | bytes]]:
    yield from ((f"{name}.name", one.name), (f"{name}.doc_string", one.doc_string))
    field = one.WhichOneof("value")
    if field in {"string_val", "bytes_val"}:
        yield f"{name}.{field}", getattr(one, field)
    elif field in {"string_list", "bytes_list"}:
        yield from ((f"{name}.{field}", value) for value in getattr(one, field).values)
