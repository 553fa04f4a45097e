"""The requests that a rank may send to the memory of its node. The frames are untrusted input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, flag, show, text, whole
from convoy_agents.pods.messages import MAX_RANK, MAX_STEP

MAX_BYTES = 2**50
MAX_SEGMENTS = 64
MAX_BROKEN = 4096
"""Maximum number of unreadable shards in one request."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """A request to allocate buffers of `size` bytes each."""

    size: int
    segments: int = 0
    """Number of buffers for journal segments; 0 to allocate the buffers for full saves instead."""


@dataclass(frozen=True, slots=True)
class Poll:
    """A long poll for the status of the rank's saves. The reply is sent when the status differs from
    `known`, or after a timeout.
    """

    known: str
    """The `status` in the last reply."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A report that a buffer holds a complete shard."""

    buffer: str
    step: int
    length: int
    world: int
    torch: str
    plan: str
    """Digest of the save plans of all ranks together."""
    last: bool = False
    """True if this is the last save of the job."""
    extends: tuple[int, int] | None = None
    """The generation that a journal segment extends, as (incarnation, step). The same rank has sealed it.
    None for a full save.
    """


@dataclass(frozen=True, slots=True)
class Abandon:
    """A report that the rank could not save a generation. Other ranks may have saved it."""

    step: int


@dataclass(frozen=True, slots=True)
class Inexact:
    """A report that replaying the journal did not reproduce the exact state of the training."""

    what: str
    """Name of the first tensor that differs."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A request for the decision from which generation the incarnation starts."""

    attempt: int
    broken: tuple[tuple[str, str], ...]
    """Pairs (node, shard id) of shards that a rank of the job could not read in earlier attempts."""
    bases: bool = False
    """True if the ranks can restore only full saves, not journal segments."""
    whole: bool = False
    """True if the rank will ask for all shards, so that the agent can fetch them at once."""


@dataclass(frozen=True, slots=True)
class FetchShard:
    """A request for one shard of the generation that is being restored."""

    shard: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A report that the rank has read all the shards that it needs, or starts without them."""

    declined: bool = False
    """True if this node had no memory for the shards, so that the ranks start at step 0."""


RankRequest = Reserve | Poll | Seal | Abandon | Inexact | Restore | FetchShard | Restored


def parse(frame: Mapping[str, Any]) -> RankRequest:
    """Parse a request. Raises MessageError, which names the invalid field."""
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
    return Restore(whole(frame, "attempt", 1000), tuple(pairs), flag(frame, "bases"), flag(frame, "whole"))


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
    "restored": lambda frame: Restored(flag(frame, "declined")),
}
