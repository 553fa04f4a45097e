"""The knowledge of a replica as bytes, which the engine stores beside its own state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from convoy_workloads.serving.replication.catching_up import STAMPS
from convoy_workloads.serving.replication.frames import Decoder, encode
from convoy_workloads.serving.replication.log import OperationLog
from convoy_workloads.serving.replication.messages import (
    FrameError,
    Sender,
    StateBegin,
    StateEnd,
    StateStamps,
)
from convoy_workloads.serving.replication.operation import ORIGIN_BYTES, Operation, Stamp, Vector


def dump(log: OperationLog) -> bytes:
    """Return the version vector and the stamps. The engine's state must have all operations that were applied
    before this call, and may have more if its log has them too.

    Not for a replica that catches up: its log knows operations that wait for the state of a peer.
    """
    return block(log.vector, log.stamps())


def block(vector: Vector, stamps: Mapping[bytes, Stamp]) -> bytes:
    """Return a version vector and stamps as frames."""
    parts = [encode(StateBegin(Sender(bytes(ORIGIN_BYTES)), vector))]
    items = iter(stamps.items())
    while some := dict(itertools.islice(items, STAMPS)):
        parts.append(encode(StateStamps(some)))
    return b"".join([*parts, encode(StateEnd())])


def load(data: bytes, operations: Iterable[Operation] = (), most_bytes: int = 64 << 20) -> OperationLog:
    """Return the knowledge of a replica that restarts: what was stored (`dump`; empty if nothing was), and
    the operations in its log after that, in their order.

    Raises FrameError if the bytes are incomplete or damaged.
    """
    log = OperationLog(most_bytes)
    if data:
        decoder = Decoder()
        found = list(decoder.feed(data))
        if decoder.pending or not found or not isinstance(found[0], StateBegin):
            raise FrameError("the stored knowledge of a replica is damaged")
        if not isinstance(found[-1], StateEnd):
            raise FrameError("the stored knowledge of a replica is incomplete")
        stamps: dict[bytes, Stamp] = {}
        for one in found[1:-1]:
            if not isinstance(one, StateStamps):
                raise FrameError("the stored knowledge of a replica is damaged")
            stamps.update(one.stamps)
        log.adopt(found[0].vector, stamps)
    log.merge(operations)
    return log
