"""What a rank may ask of its node's memory, read from frames as from a stranger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, flag, show, text, whole
from convoy_agents.pods.messages import MAX_RANK, MAX_STEP

MAX_BYTES = 2**50
MAX_SEGMENTS = 64
MAX_BROKEN = 4096
"""Shards of one question that could not be read."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Buffers of so many bytes, to be written alternately."""

    size: int
    segments: int = 0
    """For so many journal segments, in any order; 0: for full saves."""


@dataclass(frozen=True, slots=True)
class Poll:
    """How things stand, as soon as they stand otherwise than at the last answer."""

    known: str
    """The `stand` of that answer."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A buffer holds a shard now."""

    buffer: str
    step: int
    length: int
    world: int
    torch: str
    plan: str
    """Digest of all ranks' plans together."""
    last: bool = False
    """Whether the job ends with it."""
    extends: tuple[int, int] | None = None
    """Of a journal segment: the generation it follows, which the same rank has sealed."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The rank could not save what the others may have saved."""

    step: int


@dataclass(frozen=True, slots=True)
class Inexact:
    """A journal has not made again what the training had made."""

    what: str
    """The first tensor that differs."""


@dataclass(frozen=True, slots=True)
class Restore:
    """What the incarnation goes on from."""

    attempt: int
    broken: tuple[tuple[str, str], ...]
    """(node, id) of what could not be read in the attempts before, by any rank."""
    bases: bool = False
    """Whether the ranks can use full saves alone."""


@dataclass(frozen=True, slots=True)
class FetchShard:
    """A shard of what is restored."""

    shard: str


@dataclass(frozen=True, slots=True)
class Restored:
    """Everything has been read."""


RankRequest = Reserve | Poll | Seal | Abandon | Inexact | Restore | FetchShard | Restored


def parse(frame: Mapping[str, Any]) -> RankRequest:
    """The question of a frame. MessageError names what is wrong with it."""
    kind = frame["type"]
    parser = _PARSERS.get(kind)
    if parser is None:
        raise MessageError(f"type: {show(kind)} is no question")
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
        raise MessageError(f"broken: is no list of at most {MAX_BROKEN}")
    pairs = []
    for entry in broken:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str]:
            raise MessageError("broken: an entry is not [node, id]")
        pairs.append((entry[0][:253], entry[1][:64]))
    return Restore(whole(frame, "attempt", 1000), tuple(pairs), flag(frame, "bases"))


def _generation(frame: Mapping[str, Any], name: str) -> tuple[int, int] | None:
    pair = frame.get(name)
    if pair is None:
        return None
    if not isinstance(pair, list) or len(pair) != 2:
        raise MessageError(f"{name}: {show(pair)} is no [incarnation, step]")
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
