"""Commits of checkpoint generations.

Each slot's agent requests the commit from the agent of slot 0. It repeats its request until it gets a
verdict.
"""

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
from convoy_controllers.simulate.checkpoints.run_state import (
    GIVE_UP_SECONDS,
    RETRY_SECONDS,
    Formation,
    RunState,
)
from convoy_controllers.simulate.checkpoints.shard_stores import Machine


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A request of a slot's agent to commit the slot's shard of a generation at one tier."""

    formation: Formation
    machine: Machine
    """Node of the agent that sends the request."""
    slot: int
    tier: Tier
    generation: Generation
    key: str


OnVerdict = Callable[[Verdict, Record | None], None]


class Commits:
    """The commit protocol in one run."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def start_leader(self, formation: Formation) -> None:
        """Let the agent of slot 0 collect commit requests, and drop all requests that it has collected so
        far. Also called after a restart of this agent.
        """
        first = self.state.machines[formation.members[0]]
        formation.leader_starts = first.agent_starts
        slots = len(formation.members) - self.state.rules.absent
        planned = Planned(formation.number, slots)
        formation.commit_states = {
            tier: commit.step(CommitState(), planned, self.state.kernel.now).state for tier in Tier
        }
        formation.prepared_keys = {}

    def prepare(
        self, formation: Formation, machine: Machine, slot: int, tier: Tier, generation: Generation
    ) -> None:
        """Request the commit of a slot's shard at a tier, and repeat the request until there is a verdict."""
        key, agent_starts, started = (
            self.state.key(generation, slot),
            machine.agent_starts,
            self.state.kernel.now,
        )
        request = CommitRequest(formation, machine, slot, tier, generation, key)
        verdicts: list[Verdict] = []

        def on_verdict(verdict: Verdict, record: Record | None) -> None:
            if verdicts or machine.agent_starts != agent_starts:
                return
            if verdict is not Verdict.EXPIRED:
                verdicts.append(verdict)
            self._decided(request, verdict, record)

        def send_request() -> None:
            if (
                verdicts
                or machine.agent_starts != agent_starts
                or not machine.powered
                or key not in machine.memory.manifests
            ):
                return
            if tier is Tier.LOCAL and self.state.kernel.now - started > GIVE_UP_SECONDS:
                # Without a verdict, the generation may still have been committed. Nodes that know of the
                # commit then need the copies of this shard, so do not withdraw the copies.
                self._abandon(formation, machine, slot, generation, withdraw=False)
                return
            if self.abandoned(formation, machine, generation, key):
                return
            if self.state.rules.refusals and machine.latest_incarnation > formation.number:
                return
            # A slot requests a commit at the peer or remote tier only after it has received the generation's
            # record. Otherwise a node with a copy would not know that the copy belongs to a committed
            # generation.
            if tier is Tier.LOCAL or generation in machine.memory.records or not self.state.rules.recorded:
                self._request(request, on_verdict)
            self.state.kernel.after(RETRY_SECONDS, send_request)

        send_request()

    def _request(self, request: CommitRequest, on_verdict: OnVerdict) -> None:
        machine, number = request.machine, request.formation.number
        self.state.truth.check_not_superseded(
            (machine.name, machine.memory_losses), number, f"prepares {request.generation}"
        )

        def gather(first: Machine) -> None:
            self._gather(request, first, on_verdict)

        self.state.send(request.formation.members[0], gather, source=machine.name)

    def _gather(self, request: CommitRequest, first: Machine, on_verdict: OnVerdict) -> None:
        """Handle the request of a slot, at the agent of slot 0."""
        formation, slot, tier, generation = request.formation, request.slot, request.tier, request.generation

        def respond(verdict: Verdict) -> None:
            record = first.memory.records.get(generation)
            self.state.send(request.machine.name, lambda _: on_verdict(verdict, record), source=first.name)

        if formation.leader_starts != first.agent_starts:
            self.start_leader(formation)
        known = first.memory.records.get(generation)
        watermark = first.memory.watermarks.get(tier)
        if known is not None and watermark is not None and watermark >= generation:
            respond(Verdict.COMMITTED)
            return
        state = formation.commit_states[tier]
        if self.state.rules.refusals:
            state = commit.step(state, IncarnationSeen(first.latest_incarnation), self.state.kernel.now).state
        state = commit.step(state, Tick(), self.state.kernel.now).state
        formation.prepared_keys.setdefault(generation, {})[slot] = request.key
        restored = generation.incarnation < formation.number
        own = Generation(formation.number, START_STEP) if restored else generation
        result = commit.step(state, Prepare(slot, own), self.state.kernel.now)
        formation.commit_states[tier] = result.state
        for decided, verdict in result.verdicts:
            if decided == own:
                respond(verdict)
        if result.write is not None:
            self._write(formation, first, tier, result.write)

    def _write(self, formation: Formation, first: Machine, tier: Tier, own: Generation) -> None:
        """Record that a generation is committed at a tier, after every slot has prepared it.

        The record is kept by the agent of slot 0, and for the remote tier also by the store.
        """
        memory, start = first.memory, formation.start
        generation = start if start is not None and own.step == START_STEP else own
        self.state.truth.check_not_superseded(
            (first.name, first.memory_losses), formation.number, f"commits {generation}"
        )
        if tier is not Tier.LOCAL and generation not in memory.records:
            return  # The generation must first be committed at the local tier. The next request tries again.
        if tier is Tier.LOCAL:
            keys = formation.prepared_keys.get(generation, {})
            shards = {str(slot): keys[slot] for slot in sorted(keys)}
            memory.records[generation] = Record(
                generation, formation.last_commit, shards, len(formation.members)
            )
            formation.last_commit = generation
        if tier is Tier.REMOTE:
            newest = max(self.state.store.branches, default=0) if self.state.rules.branches else 0
            if first.cut or not self.state.store_up or newest > generation.incarnation:
                return
            self.state.store.records[generation] = memory.records[generation]  # type: ignore[index]
        memory.watermarks = advance(memory.watermarks, tier, generation)
        memory.collect_garbage(self.state.rules)
        if tier is Tier.PEER and generation == start:
            self.state.truth.losses_before[generation] = formation.memory_losses
        if self.state.current is formation:
            self.state.truth.advance(tier, generation)
        done = commit.step(formation.commit_states[tier], Recorded(own), self.state.kernel.now)
        formation.commit_states[tier] = done.state

    def _decided(self, request: CommitRequest, verdict: Verdict, record: Record | None) -> None:
        """Handle a verdict at the agent that sent the request."""
        formation, machine, tier = request.formation, request.machine, request.tier
        memory = machine.memory
        if memory.incarnation != formation.number:
            return
        if verdict is Verdict.COMMITTED and record is not None:
            memory.records[record.generation] = record
            memory.watermarks = advance(memory.watermarks, tier, record.generation)
            memory.collect_garbage(self.state.rules)
        elif verdict is Verdict.STALE and tier is Tier.LOCAL:
            self._abandon(formation, machine, request.slot, request.generation, withdraw=True)

    def _abandon(
        self, formation: Formation, machine: Machine, slot: int, generation: Generation, *, withdraw: bool
    ) -> None:
        """Mark a shard as abandoned on its own node. With `withdraw`, also mark its copies on other nodes.

        Do nothing if the agent knows a later incarnation, which may be about to restore the shard.
        """
        if machine.latest_incarnation > formation.number:
            return
        key = self.state.key(generation, slot)
        machine.memory.abandoned.add(key)
        machine.memory.collect_garbage(self.state.rules)
        if not withdraw:
            return

        def abandon_copy(there: Machine) -> None:
            if there.memory.incarnation == formation.number and there.latest_incarnation <= formation.number:
                there.memory.abandoned.add(key)
                there.memory.collect_garbage(self.state.rules)

        for host in self.state.hosts(formation, machine):
            self.state.send(host, abandon_copy, source=machine.name, seconds=self.state.rng.uniform(0.1, 2.0))

    def abandoned(self, formation: Formation, machine: Machine, generation: Generation, key: str) -> bool:
        """Return True if the formation's incarnation must not continue to copy or commit this shard.

        A shard that an earlier incarnation abandoned is valid again if a later incarnation has restored it.
        """
        own = generation.incarnation == formation.number
        return machine.memory.incarnation != formation.number or (own and key in machine.memory.abandoned)
