"""Requests that a rank may send to its node's memory. The frames are untrusted input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, flag, show, text, whole
from convoy_agents.pods.messages import MAX_RANK, MAX_STEP

MAX_BYTES = 2**50
MAX_SEGMENTS = 64
MAX_BROKEN = 4096
"""Maximum unreadable shards in one request."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """A request for buffers of `size` bytes each."""

    size: int
    segments: int = 0
    """Number of buffers for journal segments; 0 for the buffers of full saves."""


@dataclass(frozen=True, slots=True)
class Poll:
    """A long poll for the status of the rank's saves: it returns when the status differs from the last
    reply.
    """

    known: str
    """The `status` of the last reply."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A report that a buffer holds a complete shard."""

    buffer: str
    step: int
    length: int
    world: int
    torch: str
    plan: str
    """Digest of the plans of all ranks together."""
    last: bool = False
    """True if the job ends with this save."""
    extends: tuple[int, int] | None = None
    """Generation (incarnation, step) that a journal segment extends, sealed by the same rank; None for a
    full save.
    """


@dataclass(frozen=True, slots=True)
class Abandon:
    """A report that the rank could not save a generation, which other ranks may have saved."""

    step: int


@dataclass(frozen=True, slots=True)
class Inexact:
    """A report that a journal replay did not reproduce the training's state."""

    what: str
    """Name of the first tensor that differs."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A request for the generation that the incarnation starts from."""

    attempt: int
    broken: tuple[tuple[str, str], ...]
    """Pairs (node, id) of shards that any rank could not read in earlier attempts."""
    bases: bool = False
    """True if the ranks can use full saves only."""


@dataclass(frozen=True, slots=True)
class FetchShard:
    """A request for one shard of the generation being restored."""

    shard: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A report that the rank has read everything."""


RankRequest = Reserve | Poll | Seal | Abandon | Inexact | Restore | FetchShard | Restored


def parse(frame: Mapping[str, Any]) -> RankRequest:
    """Parse the request in a frame. The MessageError names the invalid field."""
    kind = frame["type"]
    parser = _PARSERS.get(kind)
    if parser is None:
        raise MessageError(f"type: {show(kind)} is not a request type")
    return parser(frame)


def _seal(frame: Mapping[str, Any]) -> Seal:
    return Seal(
        buffer=text(frame, "buffer", 64),
        step=whole(frame, "step", MAX_STEP),
        length=whole(frame, "length", MAX_BYTES),
        world=whole(frame, "world", MAX_RANK),
        torch=text(frame, "torch", 64),
        plan=text(frame, "plan", 64),
        last=flag(frame, "last"),
        extends=_generation(frame, "extends"),
    )


def _restore(frame: Mapping[str, Any]) -> Restore:
    broken = frame.get("broken", [])
    if not isinstance(broken, list) or len(broken) > MAX_BROKEN:
        raise MessageError(f"broken: must be a list of at most {MAX_BROKEN} entries")
    pairs = []
    for entry in broken:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str]:
            raise MessageError("broken: each entry must be [node, id]")
        pairs.append((entry[0][:253], entry[1][:64]))
    return Restore(whole(frame, "attempt", 1000), tuple(pairs), flag(frame, "bases"))


def _generation(frame: Mapping[str, Any], name: str) -> tuple[int, int] | None:
    pair = frame.get(name)
    if pair is None:
        return None
    if not isinstance(pair, list) or len(pair) != 2:
        raise MessageError(f"{name}: {show(pair)} is not [incarnation, step]")
    parts = {"incarnation": pair[0], "step": pair[1]}
    return whole(parts, "incarnation", MAX_STEP), whole(parts, "step", MAX_STEP)


_PARSERS: dict[str, Callable[[Mapping[str, Any]], RankRequest]] = {
    "reserve": lambda frame: Reserve(
        whole(frame, "size", MAX_BYTES), whole({"segments": 0, **frame}, "segments", MAX_SEGMENTS)
    ),
    "poll": lambda frame: Poll(text(frame, "known", 4096)),
    "seal": _seal,
    "abandon": lambda frame: Abandon(whole(frame, "step", MAX_STEP)),
    "inexact": lambda frame: Inexact(text(frame, "what", 512)),
    "restore": _restore,
    "shard": lambda frame: FetchShard(text(frame, "shard", 64)),
    "restored": lambda frame: Restored(),
}
