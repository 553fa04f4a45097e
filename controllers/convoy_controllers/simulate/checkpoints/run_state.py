"""Shared state of one run: nodes, store, ground truth, and a network that loses messages."""

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
from convoy_controllers.simulate.checkpoints.truth import RunTruth
from convoy_controllers.simulate.kernel import Kernel

RETRY_SECONDS = 1.0
"""Seconds between repetitions of a request that gets no answer."""
GIVE_UP_SECONDS = 20.0
"""Seconds after which an agent gives up a commit at the local tier, or an upload."""


@dataclass(slots=True)
class Formation:
    """The nodes that form one incarnation of the job, and the state of this incarnation. `number` is the
    incarnation.
    """

    number: int
    members: tuple[str, ...]
    """Nodes in the order of their slots."""
    start: Generation | None = None
    token: str = ""
    step: int = 0
    running: bool = False
    commit_states: dict[Tier, CommitState] = field(default_factory=dict)
    """State of the commit protocol at the agent of slot 0, by tier."""
    prepared_keys: dict[Generation, dict[int, str]] = field(default_factory=dict)
    """Ids of the shards that are prepared, by generation and slot. Kept at the agent of slot 0."""
    leader_starts: int = 0
    """`Machine.agent_starts` of slot 0's agent at the time when it started to collect requests."""
    last_commit: Generation | None = None
    """The newest generation that this formation committed or restored."""
    last_save: Generation | None = None
    """The newest generation that this formation saved. The next save may be a journal segment that extends
    it.
    """
    segments: int = 0
    """Number of journal segments since the newest base. A base is a save that extends no other save."""
    memory_losses: int = 0
    """Number of memory losses of all nodes in this run at the time when the formation started to copy the
    restored shards.
    """
    inventories_requested: float | None = None
    """Unix time in seconds at which the restore first requested inventories."""


class RunState:
    """State of one run. `rules` may break the protocol on purpose."""

    def __init__(self, seed: int, shape: Shape, rules: Rules) -> None:
        self.kernel = Kernel(seed)
        self.rng = self.kernel.rng
        self.shape = shape
        self.rules = rules
        self.truth = RunTruth()
        self.machines = {f"n{number}": Machine(f"n{number}") for number in range(shape.nodes)}
        self.store = Inventory({}, {}, {})
        self.store_up = True
        self.current: Formation | None = None
        """The formation that the operator considers current; None while there is none."""

    # Network

    def reachable(self, machine: Machine) -> bool:
        """Return True if other nodes can reach this node's agent."""
        return machine.up and not machine.cut

    def connected(self, source: str, target: str) -> bool:
        """Return True if two nodes can exchange messages. Two nodes that are both cut off still reach each
        other.
        """
        return source in ("", target) or self.machines[source].cut == self.machines[target].cut

    def send(
        self, target: str, act: Callable[[Machine], None], source: str = "", seconds: float = 0.0
    ) -> None:
        """Send a message to a node, which runs `act` on receipt. The message may be lost or arrive twice."""
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
        """Return the nodes that get copies of this node's shards."""
        return _hosts(formation.members, self.shape.copies)[machine.name]

    # Shards

    def shard(self, generation: Generation, slot: int) -> Manifest:
        """Return the manifest of a slot's shard in a generation."""
        before = self.truth.predecessors.get(generation)
        extends = None if before is None else self.key(before, slot)
        return shard_of(generation, slot, self.truth.tokens[generation], extends)

    def key(self, generation: Generation, slot: int) -> str:
        """Return the id of a slot's shard in a generation."""
        return self.shard(generation, slot).id

    def links(self, generation: Generation, slot: int) -> list[Manifest]:
        """Return a slot's shard and all shards that it extends, newest first."""
        return [self.shard(one, slot) for one in self.truth.chain(generation)]


@lru_cache(maxsize=1024)
def _hosts(members: tuple[str, ...], copies: int) -> Mapping[str, tuple[str, ...]]:
    return {name: one.hosts for name, one in place([Host(name) for name in members], copies).items()}
