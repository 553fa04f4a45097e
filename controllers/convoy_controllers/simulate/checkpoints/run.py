"""One run of a job that saves checkpoints, with methods for the faults of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import branch_of
from convoy_controllers.checkpoint.records import Branch, Inventory, Record, merge
from convoy_controllers.simulate.checkpoints.commits import Commits
from convoy_controllers.simulate.checkpoints.copies import Copies
from convoy_controllers.simulate.checkpoints.run_state import RETRY_SECONDS, Formation, RunState
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.shard_stores import Machine, Rules

SILENT_NODE_SECONDS = 30.0
"""Seconds that a restore waits for silent nodes. A silent node may know a later generation than the nodes
that answer.
"""
REMOTE = restore.REMOTE


class Run:
    """One run of a job. Tests pass other `rules` to break the protocol on purpose."""

    def __init__(self, seed: int, shape: Shape | None = None, rules: Rules | None = None) -> None:
        self.state = RunState(seed, shape or Shape(), rules or Rules())
        self.commits = Commits(self.state)
        self.copies = Copies(self.state, self.commits)
        self._formations = 0
        self._members: tuple[str, ...] = ()
        self._trained: list[Formation] = []

    # The operator chooses the nodes of the next incarnation.

    def form(self) -> None:
        """Form an incarnation of available nodes, with as many nodes of the previous one as possible."""
        if self.state.current is not None:
            return
        up = [name for name, machine in self.state.machines.items() if machine.up and not machine.cut]
        before = [name for name in self._members if name in up]
        rest = [name for name in up if name not in before]
        self.state.rng.shuffle(rest)
        members = [*before, *rest][: self.state.shape.slots]
        if len(members) < self.state.shape.slots:
            self.state.kernel.after(RETRY_SECONDS, self.form)
            return
        if self.state.rng.random() < 0.3:
            self.state.rng.shuffle(members)
        self._formations += 1
        self._members = tuple(members)
        formation = self.state.current = Formation(self._formations, self._members)
        for name in members:
            self.state.send(name, lambda machine: self._record_incarnation(machine, formation.number))
        self.state.kernel.after(self.state.kernel.about(0.5), lambda: self._restore(formation))

    def fail(self, formation: Formation, seconds: float = 1.0) -> None:
        """End an incarnation after a failure. Form another one after about `seconds`.

        If all nodes of the incarnation are cut off, their ranks do not notice the end and continue to
        train.
        """
        if not self._trains_isolated(formation):
            formation.running = False
        if self.state.current is formation:
            self.state.current = None
            self.state.kernel.after(self.state.kernel.about(seconds), self.form)

    def restart_agent(self, machine: Machine) -> None:
        """Restart an agent. The new process finds the shards in the node's memory, and repeats the commit
        requests that the old process had pending.
        """
        machine.agent_starts += 1
        memory = machine.memory
        floor = memory.watermarks.get(Tier.PEER, Generation(0, 0))
        for key in [key for key in memory.buffers if key not in memory.manifests]:
            # The save into this buffer was not finished, so free the buffer. The rank saves again.
            del memory.buffers[key]
        for formation in self._trained:
            if machine.name not in formation.members or memory.incarnation != formation.number:
                continue
            slot = formation.members.index(machine.name)
            for generation in sorted({memory.manifests[key].generation for key in memory.buffers}):
                if generation > floor:
                    self.commits.prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self.copies.replicate(formation, machine, slot, generation)
            if formation.start is not None and formation.start > floor:
                self.copies.replicate(formation, machine, slot, formation.start)

    def _record_incarnation(self, machine: Machine, incarnation: int) -> None:
        machine.latest_incarnation = max(machine.latest_incarnation, incarnation)
        self.state.truth.record_incarnation((machine.name, machine.memory_losses), incarnation)

    # Restores

    def _restore(self, formation: Formation) -> None:
        """Collect the inventories of all reachable nodes at the agent of slot 0, and choose a generation to
        restore.
        """
        if self.state.current is not formation or not self._alive(formation):
            self._retry(formation)
            return
        for name in formation.members:
            self._record_incarnation(self.state.machines[name], formation.number)
        if self.state.rules.branches:
            self._branch(formation, Branch(formation.number, decided=False))
        inventories = {
            name: machine.memory.inventory
            for name, machine in self.state.machines.items()
            if self.state.reachable(machine)
        }
        remote = self.state.store_up
        if remote:
            inventories[REMOTE] = Inventory(
                dict(self.state.store.records),
                dict(self.state.store.branches),
                dict(self.state.store.manifests),
            )
        all_consulted = all(
            self.state.reachable(machine) or not machine.powered for machine in self.state.machines.values()
        )
        if formation.inventories_requested is None:
            formation.inventories_requested = self.state.kernel.now
        silent = formation.number > 1 and not (all_consulted and remote)
        doubt = silent and restore.may_be_outdated(inventories, formation.number)
        late = self.state.kernel.now - formation.inventories_requested >= SILENT_NODE_SECONDS
        if doubt and self.state.rules.waits and not (remote and late):
            self._retry(formation)
            return
        found = restore.plan(inventories)
        chosen = found if isinstance(found, restore.Restore) else None
        # Treat a silent node as if its inventory had been read, unless the restore has waited
        # SILENT_NODE_SECONDS for it. Then check_restore reports a restore that did not wait long enough.
        consulted = {
            (machine.name, machine.memory_losses)
            for machine in self.state.machines.values()
            if self.state.reachable(machine) or not (doubt and late)
        }
        self.state.truth.check_restore(
            chosen, self.state.shape, all_consulted, remote, consulted | {(REMOTE, 0)}
        )
        known = merge(inventories.values())
        watermark_sets = [
            machine.memory.watermarks
            for machine in self.state.machines.values()
            if self.state.reachable(machine)
        ]
        watermarks = restore.initial_watermarks(inventories, chosen.record, watermark_sets) if chosen else {}
        records = [known.records[one] for one in set(watermarks.values())]
        self._start_training(formation, chosen, tuple(known.branches.values()), watermarks, records)

    def _start_training(
        self,
        formation: Formation,
        chosen: restore.Restore | None,
        known: Sequence[Branch],
        watermarks: Mapping[Tier, Generation],
        records: Sequence[Record],
    ) -> None:
        start = chosen.record.generation if chosen else None
        formation.start = formation.last_commit = start
        formation.token = self.state.truth.tokens[start] if start else "new"
        formation.step = start.step if start else 0
        if self.state.rules.branches:
            self._branch(formation, branch_of(formation.number, start, known))
        for name in formation.members:
            memory = self.state.machines[name].memory
            memory.incarnation = formation.number
            memory.watermarks = dict(watermarks)
            memory.records.update({one.generation: one for one in records})
            memory.collect_garbage(self.state.rules)
        formation.running = True
        informed_nodes = {(name, self.state.machines[name].memory_losses) for name in formation.members}
        self.state.truth.informed[formation.number] = informed_nodes | (
            {(REMOTE, 0)} if self.state.store_up else set()
        )
        self._trained.append(formation)
        self.commits.start_leader(formation)
        if start is not None:
            self._replicate_restored(formation, start)
        self._step(formation)

    def _replicate_restored(self, formation: Formation, start: Generation) -> None:
        """Copy the restored shards to the nodes that keep copies in this incarnation, because earlier
        copies may have been lost.
        """
        formation.memory_losses = self.state.truth.memory_losses
        for slot, name in enumerate(formation.members):
            machine = self.state.machines[name]
            for manifest in self.state.links(start, slot):
                machine.memory.manifests[manifest.id] = manifest
            self.copies.replicate(formation, machine, slot, start)

    def _branch(self, formation: Formation, branch: Branch) -> None:
        for name in formation.members:
            self.state.machines[name].memory.branches[branch.incarnation] = branch
        if self.state.store_up:
            self.state.store.branches[branch.incarnation] = branch  # type: ignore[index]

    def _retry(self, formation: Formation) -> None:
        if self.state.current is not formation:
            return
        if self._alive(formation):
            self.state.kernel.after(RETRY_SECONDS, lambda: self._restore(formation))
        else:
            self.fail(formation)

    def _alive(self, formation: Formation) -> bool:
        return all(
            self.state.machines[name].up and not self.state.machines[name].cut for name in formation.members
        )

    # Training and saving

    def _step(self, formation: Formation) -> None:
        if not formation.running or not all(self.state.machines[name].powered for name in formation.members):
            return
        if self.state.current is formation or self._trains_isolated(formation):
            formation.step += 1
            formation.token = f"{formation.token[:40]}>{formation.number}.{formation.step}"[-60:]
            if self.state.current is formation:
                self.state.truth.restored_from.setdefault(formation.number, formation.start)
            if formation.step % self.state.shape.save_every == 0:
                self._save(formation)
        self.state.kernel.after(
            self.state.kernel.about(1 / self.state.shape.steps_per_second), lambda: self._step(formation)
        )

    def _trains_isolated(self, formation: Formation) -> bool:
        """Return True if all nodes of a formation run but are cut off. Such a formation continues to train
        even after another formation has replaced it.
        """
        return all(
            self.state.machines[name].cut and self.state.machines[name].powered for name in formation.members
        )

    def _save(self, formation: Formation) -> None:
        generation = Generation(formation.number, formation.step)
        memories = [self.state.machines[name].memory for name in formation.members]
        segment = self._next_is_segment(formation)
        free = [memory.free_buffer(segment) for memory in memories]
        if segment and None in free:
            segment, free = False, [memory.free_buffer(False) for memory in memories]
        if None in free:
            return
        self.state.truth.save(generation, formation.token, formation.last_save if segment else None)
        formation.last_save = generation
        formation.segments = formation.segments + 1 if segment else 0
        for slot, name in enumerate(formation.members):
            machine, buffer = self.state.machines[name], free[slot]
            assert buffer is not None  # noqa: S101 - checked above
            # Reserve the buffer now: before the shard is sealed, no manifest shows that the buffer is in use.
            machine.memory.buffers[self.state.key(generation, slot)] = buffer
            agent_starts = machine.agent_starts

            def sealed(
                machine: Machine = machine, slot: int = slot, agent_starts: int = agent_starts
            ) -> None:
                own = self.state.shard(generation, slot)
                key = own.id
                follows = own.extends is None or own.extends in machine.memory.manifests
                if machine.powered and machine.agent_starts == agent_starts and formation.running and follows:
                    machine.memory.manifests[key] = own
                    self.commits.prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self.copies.replicate(formation, machine, slot, generation)
                    if generation.step % (self.state.shape.upload_every * self.state.shape.save_every) == 0:
                        self.copies.upload(formation, machine, slot, generation)
                elif machine.memory.manifests.get(key) is None:
                    machine.memory.buffers.pop(key, None)

            self.state.kernel.after(self.state.rng.uniform(0.01, 0.8), sealed)

    def _next_is_segment(self, formation: Formation) -> bool:
        """Return True if the next save may be a journal segment. All ranks must have sealed the previous
        save, and the base must not have the maximum number of segments yet.
        """
        last_save = formation.last_save
        if last_save is None or formation.segments >= self.state.shape.segments:
            return False
        return all(
            self.state.key(last_save, slot) in self.state.machines[name].memory.manifests
            for slot, name in enumerate(formation.members)
        )
