"""One run of a job whose ranks save, and everything that goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import branch_of
from convoy_controllers.checkpoint.records import Branch, Inventory, Record, merge
from convoy_controllers.simulate.checkpoints.commits import Commits
from convoy_controllers.simulate.checkpoints.copies import Copies
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.vaults import Machine, Rules
from convoy_controllers.simulate.checkpoints.world import AGAIN_SECONDS, Formation, World

UNHEARD_SECONDS = 30.0
"""For which a restore waits for a node that may know better and does not answer."""
REMOTE = restore.REMOTE


class Run:
    """Everything of one schedule. `rules` are the protocol's unless something is to be broken."""

    def __init__(self, seed: int, shape: Shape | None = None, rules: Rules | None = None) -> None:
        self.world = World(seed, shape or Shape(), rules or Rules())
        self.commits = Commits(self.world)
        self.copies = Copies(self.world, self.commits)
        self._forms = 0
        self._members: tuple[str, ...] = ()
        self._trained: list[Formation] = []

    # The operator: which nodes form the next incarnation.

    def form(self) -> None:
        """Forms an incarnation of nodes that are up; of the same as before as far as they are."""
        if self.world.now is not None:
            return
        up = [name for name, machine in self.world.machines.items() if machine.up and not machine.cut]
        before = [name for name in self._members if name in up]
        rest = [name for name in up if name not in before]
        self.world.rng.shuffle(rest)
        members = [*before, *rest][: self.world.shape.world]
        if len(members) < self.world.shape.world:
            self.world.kernel.after(AGAIN_SECONDS, self.form)
            return
        if self.world.rng.random() < 0.3:
            self.world.rng.shuffle(members)
        self._forms += 1
        self._members = tuple(members)
        formation = self.world.now = Formation(self._forms, self._members)
        for name in members:
            self.world.call(name, lambda machine: self._hear(machine, formation.number))
        self.world.kernel.after(self.world.kernel.about(0.5), lambda: self._restore(formation))

    def fail(self, formation: Formation, seconds: float = 1.0) -> None:
        """A rank ends, or a node does not answer: in a while another incarnation forms.

        One that is cut off as a whole knows nothing of it and trains on.
        """
        if not self._together(formation):
            formation.running = False
        if self.world.now is formation:
            self.world.now = None
            self.world.kernel.after(self.world.kernel.about(seconds), self.form)

    def restart_agent(self, machine: Machine) -> None:
        """A new agent finds what the one before had, and goes on with what is undecided."""
        machine.life += 1
        memory = machine.memory
        floor = memory.marks.get(Tier.PEER, Generation(0, 0))
        for key in [key for key in memory.homes if key not in memory.manifests]:
            del memory.homes[key]  # was being written, or digested: the rank says it again, or saves anew
        for formation in self._trained:
            if machine.name not in formation.members or memory.incarnation != formation.number:
                continue
            slot = formation.members.index(machine.name)
            for generation in sorted({memory.manifests[key].generation for key in memory.homes}):
                if generation > floor:
                    self.commits.prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self.copies.replicate(formation, machine, slot, generation)
            if formation.start is not None and formation.start > floor:
                self.copies.replicate(formation, machine, slot, formation.start)

    def _hear(self, machine: Machine, incarnation: int) -> None:
        machine.seen = max(machine.seen, incarnation)
        self.world.truth.hear((machine.name, machine.deaths), incarnation)

    # Restoring.

    def _restore(self, formation: Formation) -> None:
        """The agent of slot 0 asks everybody what they have, and decides."""
        if self.world.now is not formation or not self._alive(formation):
            self._retry(formation)
            return
        for name in formation.members:
            self._hear(self.world.machines[name], formation.number)
        if self.world.rules.branches:
            self._branch(formation, Branch(formation.number, decided=False))
        held = {
            name: machine.memory.inventory
            for name, machine in self.world.machines.items()
            if self.world.answers(machine)
        }
        remote = self.world.store_up
        if remote:
            held[REMOTE] = Inventory(
                dict(self.world.store.records),
                dict(self.world.store.branches),
                dict(self.world.store.manifests),
            )
        everybody = all(
            self.world.answers(machine) or not machine.powered for machine in self.world.machines.values()
        )
        if formation.asked is None:
            formation.asked = self.world.kernel.now
        silent = formation.number > 1 and not (everybody and remote)
        doubt = silent and restore.may_be_outdated(held, formation.number)
        late = self.world.kernel.now - formation.asked >= UNHEARD_SECONDS
        if doubt and self.world.rules.waits and not (remote and late):
            self._retry(formation)
            return
        found = restore.plan(held)
        chosen = found if isinstance(found, restore.Restore) else None
        # Who may know better counts, whether it answers or not, until it has been waited for in vain.
        asked = {
            (machine.name, machine.deaths)
            for machine in self.world.machines.values()
            if self.world.answers(machine) or not (doubt and late)
        }
        self.world.truth.judge(chosen, self.world.shape, everybody, remote, asked | {(REMOTE, 0)})
        known = merge(held.values())
        said = [
            machine.memory.marks for machine in self.world.machines.values() if self.world.answers(machine)
        ]
        marks = restore.initial_watermarks(held, chosen.record, said) if chosen else {}
        records = [known.records[one] for one in set(marks.values())]
        self._begin(formation, chosen, tuple(known.branches.values()), marks, records)

    def _begin(
        self,
        formation: Formation,
        chosen: restore.Restore | None,
        known: Sequence[Branch],
        marks: Mapping[Tier, Generation],
        records: Sequence[Record],
    ) -> None:
        start = chosen.record.generation if chosen else None
        formation.start = formation.last = start
        formation.token = self.world.truth.tokens[start] if start else "new"
        formation.step = start.step if start else 0
        if self.world.rules.branches:
            self._branch(formation, branch_of(formation.number, start, known))
        for name in formation.members:
            memory = self.world.machines[name].memory
            memory.incarnation = formation.number
            memory.marks = dict(marks)
            memory.records.update({one.generation: one for one in records})
            memory.collect(self.world.rules)
        formation.running = True
        told = {(name, self.world.machines[name].deaths) for name in formation.members}
        self.world.truth.witnesses[formation.number] = told | (
            {(REMOTE, 0)} if self.world.store_up else set()
        )
        self._trained.append(formation)
        self.commits.lead(formation)
        if start is not None:
            self._adopt(formation, start)
        self._step(formation)

    def _adopt(self, formation: Formation, start: Generation) -> None:
        """What was restored may have lost copies: it gets the places that its successors will have."""
        formation.lost = self.world.truth.lost
        for slot, name in enumerate(formation.members):
            machine = self.world.machines[name]
            for manifest in self.world.links(start, slot):
                machine.memory.manifests[manifest.id] = manifest
            self.copies.replicate(formation, machine, slot, start)

    def _branch(self, formation: Formation, branch: Branch) -> None:
        for name in formation.members:
            self.world.machines[name].memory.branches[branch.incarnation] = branch
        if self.world.store_up:
            self.world.store.branches[branch.incarnation] = branch  # type: ignore[index]

    def _retry(self, formation: Formation) -> None:
        if self.world.now is not formation:
            return
        if self._alive(formation):
            self.world.kernel.after(AGAIN_SECONDS, lambda: self._restore(formation))
        else:
            self.fail(formation)

    def _alive(self, formation: Formation) -> bool:
        return all(
            self.world.machines[name].up and not self.world.machines[name].cut for name in formation.members
        )

    # Training and saving.

    def _step(self, formation: Formation) -> None:
        if not formation.running or not all(self.world.machines[name].powered for name in formation.members):
            return
        if self.world.now is formation or self._together(formation):
            formation.step += 1
            formation.token = f"{formation.token[:40]}>{formation.number}.{formation.step}"[-60:]
            if self.world.now is formation:
                self.world.truth.began.setdefault(formation.number, formation.start)
            if formation.step % self.world.shape.save_every == 0:
                self._save(formation)
        self.world.kernel.after(
            self.world.kernel.about(1 / self.world.shape.steps_per_second), lambda: self._step(formation)
        )

    def _together(self, formation: Formation) -> bool:
        """Whether an incarnation that has been replaced still trains: all of it cut off as a whole."""
        return all(
            self.world.machines[name].cut and self.world.machines[name].powered for name in formation.members
        )

    def _save(self, formation: Formation) -> None:
        generation = Generation(formation.number, formation.step)
        memories = [self.world.machines[name].memory for name in formation.members]
        segment = self._may_follow(formation)
        free = [memory.free_slot(segment) for memory in memories]
        if segment and None in free:
            segment, free = False, [memory.free_slot(False) for memory in memories]
        if None in free:
            return
        self.world.truth.save(generation, formation.token, formation.tip if segment else None)
        formation.tip = generation
        formation.segments = formation.segments + 1 if segment else 0
        for slot, name in enumerate(formation.members):
            machine, home = self.world.machines[name], free[slot]
            assert home is not None  # noqa: S101 - looked at above
            # Until it is sealed nothing names the slot; nobody else writes there.
            machine.memory.homes[self.world.key(generation, slot)] = home
            life = machine.life

            def sealed(machine: Machine = machine, slot: int = slot, life: int = life) -> None:
                own = self.world.shard(generation, slot)
                key = own.id
                follows = own.extends is None or own.extends in machine.memory.manifests
                if machine.powered and machine.life == life and formation.running and follows:
                    machine.memory.manifests[key] = own
                    self.commits.prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self.copies.replicate(formation, machine, slot, generation)
                    if generation.step % (self.world.shape.upload_every * self.world.shape.save_every) == 0:
                        self.copies.upload(formation, machine, slot, generation)
                elif machine.memory.manifests.get(key) is None:
                    machine.memory.homes.pop(key, None)

            self.world.kernel.after(self.world.rng.uniform(0.01, 0.8), sealed)

    def _may_follow(self, formation: Formation) -> bool:
        """Whether the next save may be a segment: all ranks have sealed the one before."""
        tip = formation.tip
        if tip is None or formation.segments >= self.world.shape.segments:
            return False
        return all(
            self.world.key(tip, slot) in self.world.machines[name].memory.manifests
            for slot, name in enumerate(formation.members)
        )
