"""The frames by which a rank reports its trace, and sends its file. They are untrusted input."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, number, show, text, whole
from convoy_agents.pods.messages import MAX_STEP, RankHello
from convoy_agents.tracing.order import MAX_BYTES, TraceResult
from convoy_agents.wire import hub_pb2

MAX_MESSAGE = 512
MAX_ATTEMPT = 2**31
FAILURES = tuple(hub_pb2.TraceReport.Failure.keys())
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A request to store the file that the following `part` frames contain."""

    order: tuple[int, int]
    """Recording and attempt."""
    bytes: int
    sha256: str
    nodes: int
    comm_bytes_per_step: int
    exposed_communication_ratio: float

    def stored(self, hello: RankHello) -> TraceResult:
        """Return the result once the file of the rank that sent `hello` is stored."""
        return TraceResult(
            hello.incarnation,
            hello.rank,
            self.order,
            bytes=self.bytes,
            sha256=self.sha256,
            nodes=self.nodes,
            comm_bytes_per_step=self.comm_bytes_per_step,
            exposed_communication_ratio=self.exposed_communication_ratio,
        )


def parse_file(frame: Mapping[str, Any]) -> TraceFile:
    """Parse a `traceFile` frame. Raises MessageError, which names the invalid field."""
    digest = text(frame, "sha256", 65)
    if not _DIGEST.fullmatch(digest):
        raise MessageError(f"sha256: {show(digest)} is not a SHA-256 in hexadecimal")
    ratio = number(frame, "exposedCommunicationRatio") or 0.0
    if not 0 <= ratio <= 1:
        raise MessageError(f"exposedCommunicationRatio: {ratio} is not between 0 and 1")
    size = whole(frame, "bytes", MAX_BYTES)
    if not size:
        raise MessageError("bytes: the file is empty")
    return TraceFile(
        _order(frame),
        size,
        digest,
        whole(frame, "nodes", MAX_STEP),
        whole(frame, "commBytesPerStep", MAX_STEP),
        ratio,
    )


def parse_part(frame: Mapping[str, Any]) -> bytes:
    """Return the bytes in a `part` frame. Raises MessageError for any other frame."""
    if frame["type"] != "part":
        raise MessageError(f"type: {show(frame['type'])} instead of a part")
    data = frame.get("data")
    if not isinstance(data, str):
        raise MessageError(f"data: {show(data)} is not a text")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MessageError("data: not base64") from error


def parse_failure(frame: Mapping[str, Any], hello: RankHello) -> TraceResult:
    """Parse a `traceFailed` frame. Raises MessageError, which names the invalid field."""
    failure = frame.get("failure")
    if failure not in FAILURES:
        raise MessageError(f"failure: {show(failure)} is not one of {', '.join(FAILURES)}")
    message = text(frame, "message", MAX_MESSAGE)
    return TraceResult(hello.incarnation, hello.rank, _order(frame), failure, message)


def _order(frame: Mapping[str, Any]) -> tuple[int, int]:
    return whole(frame, "recording", MAX_STEP), whole(frame, "attempt", MAX_ATTEMPT)
