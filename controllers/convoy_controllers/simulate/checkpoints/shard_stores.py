"""Nodes, the checkpoints in their memory, and the rules of the agents that manage them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record

BASE_BUFFERS = 2
"""Buffers for bases, which a rank writes in turn."""
SEGMENT_BUFFERS = 3
"""Buffers for journal segments."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the protocol. Tests break one rule at a time to prove that the break is found."""

    absent: int = 0
    """Slots that may be missing from a commit."""
    peer_stands: bool = True
    """Memory is freed by the peer watermark, not by the local one."""
    branches: bool = True
    """Each incarnation records the generation that it restored."""
    refusals: bool = True
    """An agent that knows a later incarnation refuses requests of earlier ones."""
    acknowledged: bool = True
    """A copy counts when its host confirms it, not when it is sent."""
    recorded: bool = True
    """A slot reports its copies only after it has the generation's record."""
    waits: bool = True
    """A restore waits for silent nodes that may know a later generation."""


@dataclass(slots=True)
class ShardStore:
    """The checkpoints of one job in the memory of one node. They are lost with the node."""

    records: dict[Generation, Record] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    """Buffer number of each shard that the node's own rank saved, by manifest id."""
    abandoned: set[str] = field(default_factory=set)
    watermarks: dict[Tier, Generation] = field(default_factory=dict)
    incarnation: int = 0

    @property
    def inventory(self) -> Inventory:
        """The contents as other nodes see them."""
        return Inventory(dict(self.records), dict(self.branches), dict(self.manifests))

    def free_buffer(self, segment: bool) -> int | None:
        """Return a free buffer for a segment or a base; None if there is none."""
        used = set(self.buffers.values())
        slots = range(BASE_BUFFERS, BASE_BUFFERS + SEGMENT_BUFFERS) if segment else range(BASE_BUFFERS)
        return next((slot for slot in slots if slot not in used), None)

    def is_extended(self, key: str) -> bool:
        """Return True if another shard in the store extends this one."""
        return any(one.extends == key for one in self.manifests.values())

    def collect_garbage(self, rules: Rules) -> None:
        """Remove records, branches and shards that no restore needs any more."""
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
    """Number of starts of the agent. Callbacks of an earlier process compare it and do nothing."""
    latest_incarnation: int = 0
    """The latest incarnation that the agent knows."""
    memory_losses: int = 0
    """Number of times that the memory was lost."""

    @property
    def up(self) -> bool:
        """True if the node's agent runs."""
        return self.powered and self.agent

    def lose_power(self) -> None:
        """Cut the power and lose all memory."""
        self.powered, self.memory, self.latest_incarnation = False, ShardStore(), 0
        self.agent_starts += 1
        self.memory_losses += 1


@lru_cache(maxsize=4096)
def shard_of(generation: Generation, slot: int, token: str, extends: str | None = None) -> Manifest:
    """Return the manifest of a shard. Its only chunk is named after the saved state and the slot."""
    return Manifest(generation, str(slot), (Chunk(f"{token}/{slot}", 1),), 1, extends=extends)
