"""The message of a client to the server: a line of JSON, then the adapters in fp32. Nothing in it is
executed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from torch import Tensor

from convoy_workloads.comm.buckets import Buckets
from convoy_workloads.federated.levels import Factors

MAX_HEADER = 1 << 22
"""Maximum size of the line of JSON, in bytes. A model with 50,000 adapted layers needs less."""


class UpdateError(ValueError):
    """A message cannot be made or decoded."""


@dataclass(frozen=True)
class Update:
    """The adapters of one client after a round."""

    client: str
    round: int
    rank: int
    samples: int
    """Number of samples on which the client has trained; its weight."""
    factors: Factors

    def to_bytes(self) -> bytes:
        """Return the message. Raises UpdateError if there are too many layers."""
        tensors = [one for pair in self.factors.values() for one in pair]
        shapes = {name: [list(a.shape), list(b.shape)] for name, (a, b) in self.factors.items()}
        head = {
            "client": self.client,
            "round": self.round,
            "rank": self.rank,
            "samples": self.samples,
            "shapes": shapes,
        }
        line = json.dumps(head).encode()
        if len(line) > MAX_HEADER:
            raise UpdateError(f"the header for {len(shapes)} layers has {len(line)} bytes, over {MAX_HEADER}")
        buckets = Buckets([one.shape for one in tensors])
        flat = buckets.zeros()
        for view, tensor in zip(buckets.views(flat), tensors, strict=True):
            view.copy_(tensor)
        return b"".join([line, b"\n", *(one.numpy().tobytes() for one in flat)])


def from_bytes(message: bytes) -> Update:
    """Decode a message. Raises UpdateError if it is not one."""
    line, newline, body = message[: MAX_HEADER + 1].partition(b"\n")
    if not newline:
        raise UpdateError("the message has no header")
    body = message[len(line) + 1 :]
    try:
        head = json.loads(line)
        named = {str(name): [tuple(map(int, one)) for one in two] for name, two in head["shapes"].items()}
        client = str(head["client"])
        number, rank, samples = (int(head[name]) for name in ("round", "rank", "samples"))
        shapes = [one for two in named.values() for one in two]
        if any(len(two) != 2 for two in named.values()) or any(min(one) < 0 for one in shapes):
            raise ValueError("shapes")
        buckets = Buckets(shapes)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise UpdateError(f"the header of the message is invalid: {error!r}") from error
    if len(body) != buckets.bytes:
        raise UpdateError(f"the message has {len(body)} bytes of adapters, expected {buckets.bytes}")
    flat: list[Tensor] = buckets.zeros()
    start = 0
    for one in flat:
        size = one.numel() * one.element_size()
        if size:
            one.copy_(torch.frombuffer(bytearray(body[start : start + size]), dtype=one.dtype))
        start += size
    views = list(buckets.views(flat))
    factors = dict(zip(named, zip(views[::2], views[1::2], strict=True), strict=True))
    return Update(client, number, rank, samples, factors)
