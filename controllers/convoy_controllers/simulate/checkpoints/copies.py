"""Copies of what ranks have sealed, on other nodes and in the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Manifest
from convoy_controllers.simulate.checkpoints.commits import Commits
from convoy_controllers.simulate.checkpoints.vaults import Machine
from convoy_controllers.simulate.checkpoints.world import AGAIN_SECONDS, GIVE_UP_SECONDS, Formation, World


class Copies:
    """Of one schedule."""

    def __init__(self, world: World, commits: Commits) -> None:
        self.world = world
        self.commits = commits

    def replicate(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        """Brings what a slot has sealed to the nodes that have its copies."""
        hosts = self.world.hosts(formation, machine)
        links = self.world.links(generation, slot)
        wanted = {(host, link) for host in hosts for link in links}
        life = machine.life
        if not wanted:
            self.commits.prepare(formation, machine, slot, Tier.PEER, generation)

        def acknowledged(one: tuple[str, Manifest]) -> None:
            wanted.discard(one)
            if not wanted:
                self.commits.prepare(formation, machine, slot, Tier.PEER, generation)

        def send() -> None:
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.life != life or not there or not formation.running or not wanted:
                return
            if self.commits.dropped(formation, machine, generation, links[0].id):
                return
            for one in sorted(wanted, key=lambda one: (one[0], one[1].generation)):
                self._copy(formation, machine, *one, partial(acknowledged, one))
            self.world.kernel.after(AGAIN_SECONDS, send)

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
            if self.world.rules.refusals and there.seen > formation.number:
                return
            floor = there.memory.marks.get(Tier.PEER)
            wanted = manifest.id in there.memory.manifests or there.memory.extended(manifest.id)
            old = floor is not None and manifest.generation < floor and not wanted
            if there.memory.incarnation != formation.number or old:
                return
            what = f"keeps a copy of {manifest.generation}"
            self.world.truth.served((there.name, there.deaths), formation.number, what)
            there.memory.manifests[manifest.id] = manifest
            self.world.call(machine.name, lambda _: done(), source=host)

        self.world.call(host, arrive, source=machine.name, seconds=self.world.rng.uniform(0.1, 2.0))
        if not self.world.rules.acknowledged:
            done()

    def upload(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        """Brings what a slot has sealed to the store."""
        links, life = self.world.links(generation, slot), machine.life
        began = self.world.kernel.now

        def put() -> None:
            if machine.life != life or not machine.powered or self.world.kernel.now - began > GIVE_UP_SECONDS:
                return
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.cut or not self.world.store_up or not there:
                self.world.kernel.after(AGAIN_SECONDS, put)
                return
            self.world.store.manifests.update({link.id: link for link in links})  # type: ignore[attr-defined]
            self.commits.prepare(formation, machine, slot, Tier.REMOTE, generation)

        self.world.kernel.after(self.world.rng.uniform(0.2, 3.0), put)
