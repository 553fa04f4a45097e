"""Copies of sealed shards to other nodes and to the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Manifest
from convoy_controllers.simulate.checkpoints.commits import Commits
from convoy_controllers.simulate.checkpoints.run_state import (
    GIVE_UP_SECONDS,
    RETRY_SECONDS,
    Formation,
    RunState,
)
from convoy_controllers.simulate.checkpoints.shard_stores import Machine


class Copies:
    """The copies of shards in one run."""

    def __init__(self, state: RunState, commits: Commits) -> None:
        self.state = state
        self.commits = commits

    def replicate(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        """Copy a slot's sealed shard to the nodes that must keep its copies. Then request the commit at the
        peer tier.
        """
        hosts = self.state.hosts(formation, machine)
        links = self.state.links(generation, slot)
        wanted = {(host, link) for host in hosts for link in links}
        agent_starts = machine.agent_starts
        if not wanted:
            self.commits.prepare(formation, machine, slot, Tier.PEER, generation)

        def acknowledged(one: tuple[str, Manifest]) -> None:
            wanted.discard(one)
            if not wanted:
                self.commits.prepare(formation, machine, slot, Tier.PEER, generation)

        def send() -> None:
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.agent_starts != agent_starts or not there or not formation.running or not wanted:
                return
            if self.commits.abandoned(formation, machine, generation, links[0].id):
                return
            for one in sorted(wanted, key=lambda one: (one[0], one[1].generation)):
                self._copy(formation, machine, *one, partial(acknowledged, one))
            self.state.kernel.after(RETRY_SECONDS, send)

        send()

    def _copy(
        self,
        formation: Formation,
        machine: Machine,
        host: str,
        manifest: Manifest,
        done: Callable[[], None],
    ) -> None:
        def arrive(there: Machine) -> None:
            if self.state.rules.refusals and there.latest_incarnation > formation.number:
                return
            floor = there.memory.watermarks.get(Tier.PEER)
            wanted = manifest.id in there.memory.manifests or there.memory.is_extended(manifest.id)
            old = floor is not None and manifest.generation < floor and not wanted
            if there.memory.incarnation != formation.number or old:
                return
            what = f"accepts a copy of {manifest.generation}"
            self.state.truth.check_not_superseded((there.name, there.memory_losses), formation.number, what)
            there.memory.manifests[manifest.id] = manifest
            self.state.send(machine.name, lambda _: done(), source=host)

        self.state.send(host, arrive, source=machine.name, seconds=self.state.rng.uniform(0.1, 2.0))
        if not self.state.rules.acknowledged:
            done()

    def upload(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        """Upload a slot's sealed shard to the store. Then request the commit at the remote tier."""
        links, agent_starts = self.state.links(generation, slot), machine.agent_starts
        began = self.state.kernel.now

        def put() -> None:
            if (
                machine.agent_starts != agent_starts
                or not machine.powered
                or self.state.kernel.now - began > GIVE_UP_SECONDS
            ):
                return
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.cut or not self.state.store_up or not there:
                self.state.kernel.after(RETRY_SECONDS, put)
                return
            self.state.store.manifests.update({link.id: link for link in links})  # type: ignore[attr-defined]
            self.commits.prepare(formation, machine, slot, Tier.REMOTE, generation)

        self.state.kernel.after(self.state.rng.uniform(0.2, 3.0), put)
