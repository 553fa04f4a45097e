"""Commits: every slot asks the agent of slot 0 until it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.checkpoint import commit
from convoy_controllers.checkpoint.commit import (
    CommitState,
    IncarnationSeen,
    Planned,
    Prepare,
    Recorded,
    Tick,
    Verdict,
)
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier
from convoy_controllers.checkpoint.records import Record
from convoy_controllers.checkpoint.retention import advance
from convoy_controllers.simulate.checkpoints.vaults import Machine
from convoy_controllers.simulate.checkpoints.world import AGAIN_SECONDS, GIVE_UP_SECONDS, Formation, World


@dataclass(frozen=True, slots=True)
class Share:
    """The shard of one slot in a generation, to be committed at one tier."""

    formation: Formation
    machine: Machine
    """The node of the slot's agent."""
    slot: int
    tier: Tier
    generation: Generation
    key: str


Answer = Callable[[Verdict, Record | None], None]


class Commits:
    """Of one schedule."""

    def __init__(self, world: World) -> None:
        self.world = world

    def lead(self, formation: Formation) -> None:
        """The agent of slot 0 begins, or begins anew, to gather."""
        first = self.world.machines[formation.members[0]]
        formation.life = first.life
        slots = len(formation.members) - self.world.rules.absent
        planned = Planned(formation.number, slots)
        formation.states = {
            tier: commit.step(CommitState(), planned, self.world.kernel.now).state for tier in Tier
        }
        formation.shards = {}

    def prepare(
        self, formation: Formation, machine: Machine, slot: int, tier: Tier, generation: Generation
    ) -> None:
        """A slot's agent asks for the commit of a generation at a tier, until it is decided."""
        key, life, began = self.world.key(generation, slot), machine.life, self.world.kernel.now
        share = Share(formation, machine, slot, tier, generation, key)
        answered: list[Verdict] = []

        def answer(verdict: Verdict, record: Record | None) -> None:
            if answered or machine.life != life:
                return
            if verdict is not Verdict.EXPIRED:
                answered.append(verdict)
            self._decided(share, verdict, record)

        def ask() -> None:
            if answered or machine.life != life or not machine.powered or key not in machine.memory.manifests:
                return
            if tier is Tier.LOCAL and self.world.kernel.now - began > GIVE_UP_SECONDS:
                # Undecided is not refused: others may know that it stands, and count on the copies.
                self._give_up(formation, machine, slot, generation, withdraw=False)
                return
            if self.dropped(formation, machine, generation, key):
                return
            if self.world.rules.refusals and machine.seen > formation.number:
                return
            # Who holds a copy without the record would not know that it is worth anything.
            if tier is Tier.LOCAL or generation in machine.memory.records or not self.world.rules.recorded:
                self._request(share, answer)
            self.world.kernel.after(AGAIN_SECONDS, ask)

        ask()

    def _request(self, share: Share, answer: Answer) -> None:
        machine, number = share.machine, share.formation.number
        self.world.truth.served((machine.name, machine.deaths), number, f"prepares {share.generation}")

        def gather(first: Machine) -> None:
            self._gather(share, first, answer)

        self.world.call(share.formation.members[0], gather, source=machine.name)

    def _gather(self, share: Share, first: Machine, answer: Answer) -> None:
        """Handle a slot's request at the agent of slot 0."""
        formation, slot, tier, generation = share.formation, share.slot, share.tier, share.generation

        def reply(verdict: Verdict) -> None:
            record = first.memory.records.get(generation)
            self.world.call(share.machine.name, lambda _: answer(verdict, record), source=first.name)

        if formation.life != first.life:
            self.lead(formation)
        known = first.memory.records.get(generation)
        mark = first.memory.marks.get(tier)
        if known is not None and mark is not None and mark >= generation:
            reply(Verdict.COMMITTED)
            return
        state = formation.states[tier]
        if self.world.rules.refusals:
            state = commit.step(state, IncarnationSeen(first.seen), self.world.kernel.now).state
        state = commit.step(state, Tick(), self.world.kernel.now).state
        formation.shards.setdefault(generation, {})[slot] = share.key
        restored = generation.incarnation < formation.number
        own = Generation(formation.number, START_STEP) if restored else generation
        result = commit.step(state, Prepare(slot, own), self.world.kernel.now)
        formation.states[tier] = result.state
        for decided, verdict in result.verdicts:
            if decided == own:
                reply(verdict)
        if result.write is not None:
            self._write(formation, first, tier, result.write)

    def _write(self, formation: Formation, first: Machine, tier: Tier, own: Generation) -> None:
        """Every slot has prepared: it is written down, at the agent of slot 0 or in the store."""
        memory, start = first.memory, formation.start
        generation = start if start is not None and own.step == START_STEP else own
        self.world.truth.served((first.name, first.deaths), formation.number, f"commits {generation}")
        if tier is not Tier.LOCAL and generation not in memory.records:
            return  # it stands nowhere yet
        if tier is Tier.LOCAL:
            keys = formation.shards.get(generation, {})
            shards = {str(slot): keys[slot] for slot in sorted(keys)}
            memory.records[generation] = Record(generation, formation.last, shards, len(formation.members))
            formation.last = generation
        if tier is Tier.REMOTE:
            newest = max(self.world.store.branches, default=0) if self.world.rules.branches else 0
            if first.cut or not self.world.store_up or newest > generation.incarnation:
                return
            self.world.store.records[generation] = memory.records[generation]  # type: ignore[index]
        memory.marks = advance(memory.marks, tier, generation)
        memory.collect(self.world.rules)
        if tier is Tier.PEER and generation == start:
            self.world.truth.losses[generation] = formation.lost
        if self.world.now is formation:
            self.world.truth.advance(tier, generation)
        done = commit.step(formation.states[tier], Recorded(own), self.world.kernel.now)
        formation.states[tier] = done.state

    def _decided(self, share: Share, verdict: Verdict, record: Record | None) -> None:
        """Handle a verdict at the agent of any slot."""
        formation, machine, tier = share.formation, share.machine, share.tier
        memory = machine.memory
        if memory.incarnation != formation.number:
            return
        if verdict is Verdict.COMMITTED and record is not None:
            memory.records[record.generation] = record
            memory.marks = advance(memory.marks, tier, record.generation)
            memory.collect(self.world.rules)
        elif verdict is Verdict.STALE and tier is Tier.LOCAL:
            self._give_up(formation, machine, share.slot, share.generation, withdraw=True)

    def _give_up(
        self, formation: Formation, machine: Machine, slot: int, generation: Generation, *, withdraw: bool
    ) -> None:
        """Unless a later incarnation has looked: it may be about to go on from just that. `withdraw`: the
        copies go too.
        """
        if machine.seen > formation.number:
            return
        key = self.world.key(generation, slot)
        machine.memory.given_up.add(key)
        machine.memory.collect(self.world.rules)
        if not withdraw:
            return

        def give_back(there: Machine) -> None:
            if there.memory.incarnation == formation.number and there.seen <= formation.number:
                there.memory.given_up.add(key)
                there.memory.collect(self.world.rules)

        for host in self.world.hosts(formation, machine):
            self.world.call(host, give_back, source=machine.name, seconds=self.world.rng.uniform(0.1, 2.0))

    def dropped(self, formation: Formation, machine: Machine, generation: Generation, key: str) -> bool:
        """Whether nothing is made of it any more. What was restored stands, whoever gave it up before."""
        own = generation.incarnation == formation.number
        return machine.memory.incarnation != formation.number or (own and key in machine.memory.given_up)
