"""Pieces of shards in the wire format of `Piece` in hub.proto, without the copies that protobuf makes.

Protobuf copies a chunk's bytes twice at each end: into the message and into its text. With the functions of
this module, a sender copies a chunk once, and a receiver reads the chunk where gRPC has put it. The format
stays the same: each end may use the generated class instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2, hub_pb2_grpc

SERVICE = "convoy.wire.Shards"
_DATA = hub_pb2.Piece.DESCRIPTOR.fields_by_name["data"].number << 3 | 2
"""Tag of the field `data`: the field's number and the wire type of bytes."""
_VARINT, _BYTES = 0, 2
"""Wire types of the fields of a Piece."""
_MAX_VARINT = 10
"""Maximum bytes of a varint of 64 bits."""


@dataclass(frozen=True, slots=True)
class ShardPiece:
    """A piece of a shard, with the fields of hub_pb2.Piece. `data` may be a view of the received message."""

    index: int = 0
    data: bytes | bytearray | memoryview = b""
    job_uid: str = ""
    id: str = ""
    slot_token: str = ""
    manifest: bytes = b""


def encode(piece: ShardPiece | hub_pb2.Piece) -> bytes:
    """Return a piece in the wire format. The field `data` is the last one."""
    if isinstance(piece, hub_pb2.Piece):
        return piece.SerializeToString()
    head = hub_pb2.Piece(
        job_uid=piece.job_uid,
        id=piece.id,
        index=piece.index,
        manifest=piece.manifest,
        slot_token=piece.slot_token,
    ).SerializeToString()
    return b"".join((head, bytes((_DATA,)), _to_varint(len(piece.data)), piece.data))


def decode(text: bytes) -> ShardPiece:
    """Parse a piece. `data` of the result is a view of `text`. Raises ValueError if `text` is not a piece."""
    view, data, at = memoryview(text), memoryview(b""), 0
    rest = []
    while at < len(view):
        start = at
        tag, at = _from_varint(view, at)
        value, at = _from_varint(view, at)
        if tag & 7 == _BYTES:
            at += value
        elif tag & 7 != _VARINT:
            raise ValueError(f"a piece has a field with the wire type {tag & 7}")
        if at > len(view):
            raise ValueError(f"a piece is truncated after {len(view)} bytes")
        if tag == _DATA:
            data = view[at - value : at]
        else:
            rest.append(view[start:at])
    try:
        head = hub_pb2.Piece.FromString(b"".join(rest))
    except Exception as error:  # The class of protobuf's error depends on its implementation.
        raise ValueError(f"a piece is malformed: {error}") from error
    return ShardPiece(head.index, data, head.job_uid, head.id, head.slot_token, head.manifest)


def stub(channel: grpc.aio.Channel) -> hub_pb2_grpc.ShardsStub:
    """Return a client of the Shards service that sends and receives instances of ShardPiece."""
    # The constructor's annotation names the synchronous channel only.
    found: Any = hub_pb2_grpc.ShardsStub(channel)
    found.Put = channel.stream_unary(
        f"/{SERVICE}/Put",
        request_serializer=encode,
        response_deserializer=hub_pb2.PutReply.FromString,
    )
    found.Fetch = channel.unary_stream(
        f"/{SERVICE}/Fetch",
        request_serializer=hub_pb2.FetchRequest.SerializeToString,
        response_deserializer=decode,
    )
    return found


def serve(servicer: Any, server: grpc.aio.Server) -> None:
    """Add the Shards service to a server. Its methods Put and Fetch receive and send instances of
    ShardPiece.
    """
    generated = _Handlers()
    hub_pb2_grpc.add_ShardsServicer_to_server(servicer, generated)
    handlers = {
        **generated.found,
        "Put": grpc.stream_unary_rpc_method_handler(
            servicer.Put, request_deserializer=decode, response_serializer=hub_pb2.PutReply.SerializeToString
        ),
        "Fetch": grpc.unary_stream_rpc_method_handler(
            servicer.Fetch,
            request_deserializer=hub_pb2.FetchRequest.FromString,
            response_serializer=encode,
        ),
    }
    server.add_registered_method_handlers(SERVICE, handlers)


class _Handlers:
    """Takes the place of a server, and stores the handlers that the generated code adds to it."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore the handlers: the generated code also adds them by name."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Store the handlers by the names of their methods."""
        self.found = handlers


def _to_varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _from_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the number at the offset `at`, and the offset after the number."""
    number = 0
    for shift in range(_MAX_VARINT):
        if at + shift >= len(view):
            raise ValueError(f"a piece is truncated after {len(view)} bytes")
        byte = view[at + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise ValueError(f"a number of a piece has more than {_MAX_VARINT} bytes")
