"""What everything of one schedule shares: nodes, the store, the truth, and messages that get lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from convoy_controllers.checkpoint.commit import CommitState
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.placement import Host, place
from convoy_controllers.checkpoint.records import Inventory, Manifest
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.shard_stores import Machine, Rules, shard_of
from convoy_controllers.simulate.checkpoints.truth import Truth
from convoy_controllers.simulate.kernel import Kernel

RETRY_SECONDS = 1.0
"""Between two tries of what was not answered."""
GIVE_UP_SECONDS = 20.0
"""For a generation that does not stand locally, or does not get to the store."""


@dataclass(slots=True)
class Formation:
    """An incarnation."""

    number: int
    members: tuple[str, ...]
    """Nodes by slot."""
    start: Generation | None = None
    token: str = ""
    step: int = 0
    running: bool = False
    commit_states: dict[Tier, CommitState] = field(default_factory=dict)
    """At the agent of slot 0."""
    prepared_keys: dict[Generation, dict[int, str]] = field(default_factory=dict)
    """By slot, the ids it prepared with; at the agent of slot 0."""
    leader_starts: int = 0
    """Of the agent of slot 0 that knows them."""
    last_commit: Generation | None = None
    """What it has committed."""
    last_save: Generation | None = None
    """The newest save, which a segment may follow."""
    segments: int = 0
    """Of the journal behind its newest base."""
    memory_losses: int = 0
    """Memories that were lost before it began to make copies of what it was restored from."""
    inventories_requested: float | None = None
    """When it began to ask what to go on from."""


class RunState:
    """`rules` are the protocol's unless something is to be broken."""

    def __init__(self, seed: int, shape: Shape, rules: Rules) -> None:
        self.kernel = Kernel(seed)
        self.rng = self.kernel.rng
        self.shape = shape
        self.rules = rules
        self.truth = Truth()
        self.machines = {f"n{number}": Machine(f"n{number}") for number in range(shape.nodes)}
        self.store = Inventory({}, {}, {})
        self.store_up = True
        self.current: Formation | None = None
        """The incarnation that the operator knows of."""

    # Who is there.

    def reachable(self, machine: Machine) -> bool:
        """Whether its agent can be consulted."""
        return machine.up and not machine.cut

    def connected(self, source: str, target: str) -> bool:
        """Nodes that are cut off still reach one another."""
        return source in ("", target) or self.machines[source].cut == self.machines[target].cut

    def send(
        self, target: str, act: Callable[[Machine], None], source: str = "", seconds: float = 0.0
    ) -> None:
        """A message, which may get lost or come twice."""
        times = 1
        if source != target and source:
            chance = self.rng.random()
            times = 0 if chance < self.shape.loss else 2 if chance > 1 - self.shape.loss else 1
        there = self.machines[target]
        agent_starts = there.agent_starts
        for _ in range(times):

            def arrive() -> None:
                if there.up and there.agent_starts == agent_starts and self.connected(source, target):
                    act(there)

            self.kernel.after(seconds + self.rng.uniform(0.001, 0.2), arrive)

    def hosts(self, formation: Formation, machine: Machine) -> tuple[str, ...]:
        """The nodes that have a node's copies."""
        return _hosts(formation.members, self.shape.copies)[machine.name]

    # What ranks save.

    def shard(self, generation: Generation, slot: int) -> Manifest:
        """What a slot has saved as a generation."""
        before = self.truth.predecessors.get(generation)
        extends = None if before is None else self.key(before, slot)
        return shard_of(generation, slot, self.truth.tokens[generation], extends)

    def key(self, generation: Generation, slot: int) -> str:
        """The id of what a slot has saved as a generation."""
        return self.shard(generation, slot).id

    def links(self, generation: Generation, slot: int) -> list[Manifest]:
        """A shard and all that it extends, itself first."""
        return [self.shard(one, slot) for one in self.truth.chain(generation)]


@lru_cache(maxsize=1024)
def _hosts(members: tuple[str, ...], copies: int) -> Mapping[str, tuple[str, ...]]:
    return {name: one.hosts for name, one in place([Host(name) for name in members], copies).items()}
