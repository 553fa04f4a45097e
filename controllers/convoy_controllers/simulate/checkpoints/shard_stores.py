"""Nodes and what their memory holds of one job; by the rules that the agents follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record

BASE_BUFFERS = 2
"""Bases that a rank may write alternately."""
SEGMENT_BUFFERS = 3
"""Slots for the segments of its journal."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol, and what can be broken of it to see whether that is found."""

    absent: int = 0
    """Slots that may be missing from a commit."""
    peer_stands: bool = True
    """ShardStore is kept for the peer watermark, not for the local one alone."""
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
class ShardStore:
    """Of one node; it goes with the node."""

    records: dict[Generation, Record] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    """By manifest of the rank's own, the slot it lies in."""
    abandoned: set[str] = field(default_factory=set)
    watermarks: dict[Tier, Generation] = field(default_factory=dict)
    incarnation: int = 0

    @property
    def inventory(self) -> Inventory:
        """What others are told of it."""
        return Inventory(dict(self.records), dict(self.branches), dict(self.manifests))

    def free_buffer(self, segment: bool) -> int | None:
        """A slot that may be written, by a segment or by a base."""
        used = set(self.buffers.values())
        slots = range(BASE_BUFFERS, BASE_BUFFERS + SEGMENT_BUFFERS) if segment else range(BASE_BUFFERS)
        return next((slot for slot in slots if slot not in used), None)

    def is_extended(self, key: str) -> bool:
        """Whether something that is here extends it."""
        return any(one.extends == key for one in self.manifests.values())

    def collect_garbage(self, rules: Rules) -> None:
        """Drops what is not needed any more."""
        watermarks = dict(self.watermarks)
        if not rules.peer_stands and Tier.LOCAL in watermarks:
            watermarks[Tier.PEER] = watermarks[Tier.LOCAL]
        garbage = retention.memory_garbage(self.inventory, watermarks, self.incarnation, self.abandoned)
        for generation in garbage.records:
            del self.records[generation]
        for number in garbage.branches:
            del self.branches[number]
        for key in garbage.manifests:
            del self.manifests[key]
            self.buffers.pop(key, None)
        self.abandoned &= self.manifests.keys()


@dataclass(slots=True)
class Machine:
    """A node."""

    name: str
    memory: ShardStore = field(default_factory=ShardStore)
    powered: bool = True
    agent: bool = True
    cut: bool = False
    agent_starts: int = 0
    """Counts the starts of its agent: what an earlier one was doing is over."""
    latest_incarnation: int = 0
    """The latest incarnation its agent has heard of."""
    memory_losses: int = 0
    """How often its memory was lost."""

    @property
    def up(self) -> bool:
        """Whether its agent runs."""
        return self.powered and self.agent

    def lose_power(self) -> None:
        """Everything in its memory is gone."""
        self.powered, self.memory, self.latest_incarnation = False, ShardStore(), 0
        self.agent_starts += 1
        self.memory_losses += 1


@lru_cache(maxsize=4096)
def shard_of(generation: Generation, slot: int, token: str, extends: str | None = None) -> Manifest:
    """What a rank saves: its only chunk is named after the state and the slot."""
    return Manifest(generation, str(slot), (Chunk(f"{token}/{slot}", 1),), 1, extends=extends)
