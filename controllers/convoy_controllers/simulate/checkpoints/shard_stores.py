"""Nodes, the checkpoints in their memory, and the rules that their agents follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record

BASE_BUFFERS = 2
"""Number of buffers for bases, which are saves that extend no other save. A rank writes to these buffers in
turn.
"""
SEGMENT_BUFFERS = 3
"""Number of buffers for journal segments."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the protocol. Tests break one rule at a time to prove that a violation is found."""

    absent: int = 0
    """Number of slots that may be missing from a commit."""
    peer_stands: bool = True
    """True if memory keeps older shards until a newer generation is committed at the peer tier. If False, a
    commit at the local tier is enough to free them.
    """
    branches: bool = True
    """True if each incarnation records which generation it restored."""
    refusals: bool = True
    """True if an agent that knows a later incarnation refuses requests of earlier ones."""
    acknowledged: bool = True
    """True if a copy counts only after its host confirms it; False if it counts when it is sent."""
    recorded: bool = True
    """True if a slot reports its copies only after it has received the generation's record."""
    waits: bool = True
    """True if a restore waits for silent nodes that may know a later generation."""


@dataclass(slots=True)
class ShardStore:
    """Checkpoints of one job in the memory of one node. They are lost when the node loses power."""

    records: dict[Generation, Record] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    """Number of the buffer of each shard that the node's own rank saved, by manifest id."""
    abandoned: set[str] = field(default_factory=set)
    watermarks: dict[Tier, Generation] = field(default_factory=dict)
    incarnation: int = 0

    @property
    def inventory(self) -> Inventory:
        """The contents of this store, in the form that is sent to other nodes."""
        return Inventory(dict(self.records), dict(self.branches), dict(self.manifests))

    def free_buffer(self, segment: bool) -> int | None:
        """Return the number of a free buffer for a journal segment, or for a base. Return None if all
        buffers of this kind are in use.
        """
        used = set(self.buffers.values())
        slots = range(BASE_BUFFERS, BASE_BUFFERS + SEGMENT_BUFFERS) if segment else range(BASE_BUFFERS)
        return next((slot for slot in slots if slot not in used), None)

    def is_extended(self, key: str) -> bool:
        """Return True if another shard in the store extends this one."""
        return any(one.extends == key for one in self.manifests.values())

    def collect_garbage(self, rules: Rules) -> None:
        """Remove records, branches and shards that no restore can need any more."""
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
    """A node: its memory, its agent and its connection."""

    name: str
    memory: ShardStore = field(default_factory=ShardStore)
    powered: bool = True
    agent: bool = True
    cut: bool = False
    agent_starts: int = 0
    """Number of starts of the agent. If the agent has restarted since a callback was scheduled, the
    callback finds another number here and does nothing.
    """
    latest_incarnation: int = 0
    """Latest incarnation that the agent knows."""
    memory_losses: int = 0
    """Number of times that the memory was lost."""

    @property
    def up(self) -> bool:
        """True if the node's agent runs."""
        return self.powered and self.agent

    def lose_power(self) -> None:
        """Cut the power, so that the memory is lost."""
        self.powered, self.memory, self.latest_incarnation = False, ShardStore(), 0
        self.agent_starts += 1
        self.memory_losses += 1


@lru_cache(maxsize=4096)
def shard_of(generation: Generation, slot: int, token: str, extends: str | None = None) -> Manifest:
    """Return the manifest of a shard. Its single chunk has the name `<token>/<slot>`, where `token`
    identifies the saved state.
    """
    return Manifest(generation, str(slot), (Chunk(f"{token}/{slot}", 1),), 1, extends=extends)
