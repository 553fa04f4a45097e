"""Nodes and what their memory holds of one job; by the rules that the agents follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record

SLOTS = 2
"""Bases that a rank may write alternately."""
SEGMENTS = 3
"""Slots for the segments of its journal."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol, and what can be broken of it to see whether that is found."""

    absent: int = 0
    """Slots that may be missing from a commit."""
    peer_stands: bool = True
    """Memory is kept for the peer watermark, not for the local one alone."""
    branches: bool = True
    """Incarnations say where they began."""
    refusals: bool = True
    """An agent that has heard of a later incarnation refuses the earlier one."""
    acknowledged: bool = True
    """A copy counts once its host has said that it is whole, not when it is sent."""
    recorded: bool = True
    """A slot says that its copies are there once it knows the generation's record."""
    waits: bool = True
    """A restore waits for those who may know better and do not answer."""


@dataclass(slots=True)
class Memory:
    """Of one node; it goes with the node."""

    records: dict[Generation, Record] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    """By manifest of the rank's own, the slot it lies in."""
    given_up: set[str] = field(default_factory=set)
    marks: dict[Tier, Generation] = field(default_factory=dict)
    incarnation: int = 0

    @property
    def inventory(self) -> Inventory:
        """What others are told of it."""
        return Inventory(dict(self.records), dict(self.branches), dict(self.manifests))

    def free_slot(self, segment: bool) -> int | None:
        """A slot that may be written, by a segment or by a base."""
        used = set(self.homes.values())
        slots = range(SLOTS, SLOTS + SEGMENTS) if segment else range(SLOTS)
        return next((slot for slot in slots if slot not in used), None)

    def extended(self, key: str) -> bool:
        """Whether something that is here extends it."""
        return any(one.extends == key for one in self.manifests.values())

    def collect(self, rules: Rules) -> None:
        """Drops what is not needed any more."""
        marks = dict(self.marks)
        if not rules.peer_stands and Tier.LOCAL in marks:
            marks[Tier.PEER] = marks[Tier.LOCAL]
        garbage = retention.memory_garbage(self.inventory, marks, self.incarnation, self.given_up)
        for generation in garbage.records:
            del self.records[generation]
        for number in garbage.branches:
            del self.branches[number]
        for key in garbage.manifests:
            del self.manifests[key]
            self.homes.pop(key, None)
        self.given_up &= self.manifests.keys()


@dataclass(slots=True)
class Machine:
    """A node."""

    name: str
    memory: Memory = field(default_factory=Memory)
    powered: bool = True
    agent: bool = True
    cut: bool = False
    life: int = 0
    """Counts the starts of its agent: what an earlier one was doing is over."""
    seen: int = 0
    """The latest incarnation its agent has heard of."""
    deaths: int = 0
    """How often its memory was lost."""

    @property
    def up(self) -> bool:
        """Whether its agent runs."""
        return self.powered and self.agent

    def die(self) -> None:
        """Everything in its memory is gone."""
        self.powered, self.memory, self.seen = False, Memory(), 0
        self.life += 1
        self.deaths += 1


@lru_cache(maxsize=4096)
def shard_of(generation: Generation, slot: int, token: str, extends: str | None = None) -> Manifest:
    """What a rank saves: its only chunk is named after the state and the slot."""
    return Manifest(generation, str(slot), (Chunk(f"{token}/{slot}", 1),), 1, extends=extends)
