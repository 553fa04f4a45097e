"""A shard in another pod of the replica, reached over the replica's process group.

Rank 0 sends the name of a method and its arguments, and the other rank responds with the result. Each message
is its length, and then JSON whose arrays follow as bytes. Rank 0 sends a message at least once a second, so
a rank that hears nothing for long knows that rank 0 is lost.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
import torch.distributed as dist

from convoy_workloads.engines.aperon import operations
from convoy_workloads.engines.aperon.commands import Hits, Query, Stored
from convoy_workloads.engines.aperon.errors import InvalidInput, NoSpace
from convoy_workloads.engines.aperon.recall import RecallEstimate
from convoy_workloads.engines.aperon.shard import Facts, Shard
from convoy_workloads.kernels.hntl_arrays import Floats

IDLE = "idle"
END = "end"
_HEAD = struct.Struct("<I")


def pack(body: Any, array: Floats | None = None, data: bytes = b"") -> bytes:
    """Return a message: JSON, and a table of numbers or other bytes."""
    shape = None if array is None else list(array.shape)
    text = orjson.dumps({"body": body, "shape": shape}, option=orjson.OPT_SERIALIZE_DATACLASS)
    rest = data if array is None else np.ascontiguousarray(array, "<f4").tobytes()
    return _HEAD.pack(len(text)) + text + rest


def unpack(message: bytes) -> tuple[Any, Floats | None, bytes]:
    """Return the JSON, the table and the bytes of a message."""
    (length,) = _HEAD.unpack_from(message)
    at = _HEAD.size + length
    head = orjson.loads(message[_HEAD.size : at])
    if head["shape"] is None:
        return head["body"], None, message[at:]
    return head["body"], np.frombuffer(message, "<f4", offset=at).reshape(head["shape"]), b""


def call_message(name: str, arguments: tuple[Any, ...]) -> bytes:
    """Return the message of a call."""
    if name == "search":
        return pack([name, asdict(arguments[1])], arguments[0])
    if name == "write":
        return pack([name], data=operations.encode(arguments[0]))
    return pack([name, *arguments])


def perform(shard: Shard, message: bytes) -> bytes:
    """Perform the call in `message` on the shard. Return a message with the result."""
    (name, *arguments), array, data = unpack(message)
    try:
        if name == "search":
            assert array is not None  # noqa: S101 - rank 0 sends it
            return _hits_message(shard.search(array.astype(np.float32), Query(**arguments[0])))
        if name == "write":
            return pack(shard.write(operations.decode(data)))
        if name == "fetch":
            return _stored_message(shard.fetch(*arguments))
        if name == "next_export":
            return pack(None, data=shard.exports.next(*arguments))
        methods: Mapping[str, Callable[..., Any]] = {
            "chosen": shard.chosen,
            "present": shard.present,
            "count": shard.count,
            "sync": shard.sync,
            "facts": shard.facts,
            "open_export": shard.exports.open,
            "close_export": shard.exports.close,
        }
        return pack(methods[name](*arguments))
    except NoSpace as error:
        return pack({"full": str(error.path)})
    except InvalidInput as error:
        return pack({"invalid": [error.field, error.problem]})


def result_of(name: str, message: bytes) -> Any:
    """Return the result in a message. Raises InvalidInput if the other process refused the input, and NoSpace
    if its disk is full.
    """
    body, array, data = unpack(message)
    if isinstance(body, dict) and "invalid" in body:
        raise InvalidInput(*body["invalid"])
    if isinstance(body, dict) and "full" in body:
        raise NoSpace(Path(body["full"]))
    if name == "next_export":
        return data
    if name == "search":
        return _hits(body, array)
    if name == "fetch":
        return _stored(body, array)
    if name == "facts":
        recall = body.pop("recall")
        return Facts(**body, recall=None if recall is None else RecallEstimate(**recall))
    return body


def _hits_message(hits: Hits) -> bytes:
    body = [hits.ids, hits.scanned, hits.sequence, hits.records, hits.vectors is not None]
    distances = np.concatenate([np.empty(0, np.float32), *hits.distances])
    if hits.vectors is None:
        return pack(body, distances)
    # A row of the table has a result's distance, and then its vector.
    return pack(body, np.concatenate([distances[:, None], np.concatenate(hits.vectors)], axis=1))


def _hits(body: Any, array: Any) -> Hits:
    ids, scanned, sequence, records, with_vectors = body
    ends = np.cumsum([len(one) for one in ids])[:-1]
    rows = np.split(array, ends)
    if not with_vectors:
        return Hits(ids, rows, scanned, sequence, records)
    return Hits(ids, [one[:, 0] for one in rows], scanned, sequence, records, [one[:, 1:] for one in rows])


def _stored_message(found: list[Stored | None]) -> bytes:
    body = [None if one is None else [one.id, one.record] for one in found]
    vectors = [one.vector for one in found if one is not None]
    return pack(body, np.stack(vectors) if vectors else np.empty((0, 0), np.float32))


def _stored(body: Any, array: Any) -> list[Stored | None]:
    rows = iter(array)
    return [None if one is None else Stored(one[0], next(rows), one[1]) for one in body]


class RemoteShard:
    """The shard of another rank, as rank 0 uses it. Errors of the connection are RuntimeErrors; they end the
    engine.
    """

    def __init__(self, rank: int) -> None:
        self.lock = threading.Lock()
        self._rank = rank
        self._name = ""

    def start(self, name: str, *arguments: Any) -> None:
        """Send a call of a method of the shard."""
        self._name = name
        _send(call_message(name, arguments), self._rank)

    def finish(self) -> Any:
        """Return the result of the call. Raises what `result_of` raises."""
        return result_of(self._name, _receive(self._rank))

    def idle(self) -> None:
        """Show the rank that this one is alive."""
        _send(pack([IDLE]), self._rank)

    def end(self) -> None:
        """Let the rank end."""
        _send(pack([END]), self._rank)


def follow(shard: Shard, beat: Callable[[], None]) -> None:
    """Do the calls of rank 0 until it ends. `beat` is called for each. Raises RuntimeError if rank 0 is
    lost.
    """
    while True:
        message = _receive(0)
        beat()
        name = unpack(message)[0][0]
        if name == END:
            return
        if name != IDLE:
            _send(perform(shard, message), 0)


def _send(message: bytes, rank: int) -> None:
    dist.send(torch.tensor([len(message)], dtype=torch.int64), rank)
    dist.send(torch.frombuffer(bytearray(message), dtype=torch.uint8), rank)


def _receive(rank: int) -> bytes:
    length = torch.empty(1, dtype=torch.int64)
    dist.recv(length, rank)
    found = torch.empty(int(length[0]), dtype=torch.uint8)
    dist.recv(found, rank)
    return found.numpy().tobytes()
