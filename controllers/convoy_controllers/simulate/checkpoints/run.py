"""One run of a job whose ranks save, and everything that goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from convoy_controllers.checkpoint import commit, restore
from convoy_controllers.checkpoint.commit import CommitState, Planned, Prepare, Recorded, Seen, Tick, Verdict
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier
from convoy_controllers.checkpoint.lineage import branch_of
from convoy_controllers.checkpoint.placement import Host, place
from convoy_controllers.checkpoint.records import Branch, Inventory, Manifest, Record, merge
from convoy_controllers.checkpoint.retention import advance
from convoy_controllers.simulate.checkpoints.shape import Shape
from convoy_controllers.simulate.checkpoints.truth import Truth
from convoy_controllers.simulate.checkpoints.vaults import Machine, Rules, shard_of
from convoy_controllers.simulate.kernel import Kernel

AGAIN_SECONDS = 1.0
"""Between two tries of what was not answered."""
GIVE_UP_SECONDS = 20.0
"""For a generation that does not stand locally, or does not get to the store."""
UNHEARD_SECONDS = 30.0
"""For which a restore waits for a node that may know better and does not answer."""
REMOTE = restore.REMOTE


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
    states: dict[Tier, CommitState] = field(default_factory=dict)
    """At the agent of slot 0."""
    shards: dict[Generation, dict[int, str]] = field(default_factory=dict)
    """By slot, the ids it prepared with; at the agent of slot 0."""
    life: int = 0
    """Of the agent of slot 0 that knows them."""
    last: Generation | None = None
    """What it has committed."""
    tip: Generation | None = None
    """The newest save, which a segment may follow."""
    segments: int = 0
    """Of the journal behind its newest base."""
    lost: int = 0
    """Memories that were lost before it began to make copies of what it was restored from."""
    asked: float | None = None
    """When it began to ask what to go on from."""


class Run:
    """Everything of one schedule. `rules` are the protocol's unless something is to be broken."""

    def __init__(self, seed: int, shape: Shape | None = None, rules: Rules | None = None) -> None:
        self.kernel = Kernel(seed)
        self.rng = self.kernel.rng
        self.shape = shape or Shape()
        self.rules = rules or Rules()
        self.truth = Truth()
        self.machines = {f"n{number}": Machine(f"n{number}") for number in range(self.shape.nodes)}
        self.store = Inventory({}, {}, {})
        self.store_up = True
        self.now: Formation | None = None
        self._forms = 0
        self._members: tuple[str, ...] = ()
        self._trained: list[Formation] = []

    # The operator: which nodes form the next incarnation.

    def form(self) -> None:
        """Forms an incarnation of nodes that are up; of the same as before as far as they are."""
        if self.now is not None:
            return
        up = [name for name, machine in self.machines.items() if machine.up and not machine.cut]
        before = [name for name in self._members if name in up]
        rest = [name for name in up if name not in before]
        self.rng.shuffle(rest)
        members = [*before, *rest][: self.shape.world]
        if len(members) < self.shape.world:
            self.kernel.after(AGAIN_SECONDS, self.form)
            return
        if self.rng.random() < 0.3:
            self.rng.shuffle(members)
        self._forms += 1
        self._members = tuple(members)
        formation = self.now = Formation(self._forms, self._members)
        for name in members:
            self._call(name, lambda machine: self._hear(machine, formation.number))
        self.kernel.after(self.kernel.about(0.5), lambda: self._restore(formation))

    def fail(self, formation: Formation, seconds: float = 1.0) -> None:
        """A rank ends, or a node does not answer: in a while another incarnation forms.

        One that is cut off as a whole knows nothing of it and trains on.
        """
        if not self._together(formation):
            formation.running = False
        if self.now is formation:
            self.now = None
            self.kernel.after(self.kernel.about(seconds), self.form)

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
                    self._prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self._replicate(formation, machine, slot, generation)
            if formation.start is not None and formation.start > floor:
                self._replicate(formation, machine, slot, formation.start)

    def _hear(self, machine: Machine, incarnation: int) -> None:
        machine.seen = max(machine.seen, incarnation)

    # Restoring.

    def _restore(self, formation: Formation) -> None:
        """The agent of slot 0 asks everybody what they have, and decides."""
        if self.now is not formation or not self._alive(formation):
            self._retry(formation)
            return
        for name in formation.members:
            self._hear(self.machines[name], formation.number)
        if self.rules.branches:
            self._branch(formation, Branch(formation.number, decided=False))
        held = {
            name: machine.memory.inventory
            for name, machine in self.machines.items()
            if self._answers(machine)
        }
        remote = self.store_up
        if remote:
            held[REMOTE] = Inventory(
                dict(self.store.records), dict(self.store.branches), dict(self.store.manifests)
            )
        everybody = all(self._answers(machine) or not machine.powered for machine in self.machines.values())
        if formation.asked is None:
            formation.asked = self.kernel.now
        silent = formation.number > 1 and not (everybody and remote)
        doubt = silent and restore.doubtful(held, formation.number)
        late = self.kernel.now - formation.asked >= UNHEARD_SECONDS
        if doubt and self.rules.waits and not (remote and late):
            self._retry(formation)
            return
        found = restore.plan(held)
        chosen = found if isinstance(found, restore.Restore) else None
        # Who may know better counts, whether it answers or not, until it has been waited for in vain.
        asked = {
            (machine.name, machine.deaths)
            for machine in self.machines.values()
            if self._answers(machine) or not (doubt and late)
        }
        self.truth.judge(chosen, self.shape, everybody, remote, asked | {(REMOTE, 0)})
        known = merge(held.values())
        said = [machine.memory.marks for machine in self.machines.values() if self._answers(machine)]
        marks = restore.standing(held, chosen.record, said) if chosen else {}
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
        formation.token = self.truth.tokens[start] if start else "new"
        formation.step = start.step if start else 0
        if self.rules.branches:
            self._branch(formation, branch_of(formation.number, start, known))
        for name in formation.members:
            memory = self.machines[name].memory
            memory.incarnation = formation.number
            memory.marks = dict(marks)
            memory.records.update({one.generation: one for one in records})
            memory.collect(self.rules)
        formation.running = True
        told = {(name, self.machines[name].deaths) for name in formation.members}
        self.truth.witnesses[formation.number] = told | ({(REMOTE, 0)} if self.store_up else set())
        self._trained.append(formation)
        self._lead(formation)
        if start is not None:
            self._adopt(formation, start)
        self._step(formation)

    def _adopt(self, formation: Formation, start: Generation) -> None:
        """What was restored may have lost copies: it gets the places that its successors will have."""
        formation.lost = self.truth.lost
        for slot, name in enumerate(formation.members):
            machine = self.machines[name]
            for manifest in self._links(start, slot):
                machine.memory.manifests[manifest.id] = manifest
            self._replicate(formation, machine, slot, start)

    def _branch(self, formation: Formation, branch: Branch) -> None:
        for name in formation.members:
            self.machines[name].memory.branches[branch.incarnation] = branch
        if self.store_up:
            self.store.branches[branch.incarnation] = branch  # type: ignore[index]

    def _retry(self, formation: Formation) -> None:
        if self.now is not formation:
            return
        if self._alive(formation):
            self.kernel.after(AGAIN_SECONDS, lambda: self._restore(formation))
        else:
            self.fail(formation)

    def _alive(self, formation: Formation) -> bool:
        return all(self.machines[name].up and not self.machines[name].cut for name in formation.members)

    # Training and saving.

    def _step(self, formation: Formation) -> None:
        if not formation.running or not all(self.machines[name].powered for name in formation.members):
            return
        if self.now is formation or self._together(formation):
            formation.step += 1
            formation.token = f"{formation.token[:40]}>{formation.number}.{formation.step}"[-60:]
            if self.now is formation:
                self.truth.began.setdefault(formation.number, formation.start)
            if formation.step % self.shape.save_every == 0:
                self._save(formation)
        self.kernel.after(self.kernel.about(1 / self.shape.steps_per_second), lambda: self._step(formation))

    def _together(self, formation: Formation) -> bool:
        """Whether an incarnation that has been replaced still trains: all of it cut off as a whole."""
        return all(self.machines[name].cut and self.machines[name].powered for name in formation.members)

    def _save(self, formation: Formation) -> None:
        generation = Generation(formation.number, formation.step)
        memories = [self.machines[name].memory for name in formation.members]
        segment = self._may_follow(formation)
        free = [memory.free_slot(segment) for memory in memories]
        if segment and None in free:
            segment, free = False, [memory.free_slot(False) for memory in memories]
        if None in free:
            return
        self.truth.save(generation, formation.token, formation.tip if segment else None)
        formation.tip = generation
        formation.segments = formation.segments + 1 if segment else 0
        for slot, name in enumerate(formation.members):
            machine, home = self.machines[name], free[slot]
            assert home is not None  # noqa: S101 - looked at above
            # Until it is sealed nothing names the slot; nobody else writes there.
            machine.memory.homes[self._key(generation, slot)] = home
            life = machine.life

            def sealed(machine: Machine = machine, slot: int = slot, life: int = life) -> None:
                own = self._shard(generation, slot)
                key = own.id
                follows = own.extends is None or own.extends in machine.memory.manifests
                if machine.powered and machine.life == life and formation.running and follows:
                    machine.memory.manifests[key] = own
                    self._prepare(formation, machine, slot, Tier.LOCAL, generation)
                    self._replicate(formation, machine, slot, generation)
                    if generation.step % (self.shape.upload_every * self.shape.save_every) == 0:
                        self._upload(formation, machine, slot, generation)
                elif machine.memory.manifests.get(key) is None:
                    machine.memory.homes.pop(key, None)

            self.kernel.after(self.rng.uniform(0.01, 0.8), sealed)

    def _may_follow(self, formation: Formation) -> bool:
        """Whether the next save may be a segment: all ranks have sealed the one before."""
        tip = formation.tip
        if tip is None or formation.segments >= self.shape.segments:
            return False
        return all(
            self._key(tip, slot) in self.machines[name].memory.manifests
            for slot, name in enumerate(formation.members)
        )

    def _shard(self, generation: Generation, slot: int) -> Manifest:
        before = self.truth.follows.get(generation)
        extends = None if before is None else self._key(before, slot)
        return shard_of(generation, slot, self.truth.tokens[generation], extends)

    def _key(self, generation: Generation, slot: int) -> str:
        return self._shard(generation, slot).id

    def _links(self, generation: Generation, slot: int) -> list[Manifest]:
        """A shard and all that it extends, itself first."""
        return [self._shard(one, slot) for one in self.truth.chain(generation)]

    # Copies.

    def _replicate(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        hosts = _hosts(formation.members, self.shape.copies)[machine.name]
        links = self._links(generation, slot)
        wanted = {(host, link) for host in hosts for link in links}
        life = machine.life
        if not wanted:
            self._prepare(formation, machine, slot, Tier.PEER, generation)

        def acknowledged(one: tuple[str, Manifest]) -> None:
            wanted.discard(one)
            if not wanted:
                self._prepare(formation, machine, slot, Tier.PEER, generation)

        def send() -> None:
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.life != life or not there or not formation.running or not wanted:
                return
            if self._dropped(formation, machine, generation, links[0].id):
                return
            for one in sorted(wanted, key=lambda one: (one[0], one[1].generation)):
                self._copy(formation, machine, *one, partial(acknowledged, one))
            self.kernel.after(AGAIN_SECONDS, send)

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
            if self.rules.refusals and there.seen > formation.number:
                return
            floor = there.memory.marks.get(Tier.PEER)
            wanted = manifest.id in there.memory.manifests or there.memory.extended(manifest.id)
            old = floor is not None and manifest.generation < floor and not wanted
            if there.memory.incarnation != formation.number or old:
                return
            there.memory.manifests[manifest.id] = manifest
            self._call(machine.name, lambda _: done(), source=host)

        self._call(host, arrive, source=machine.name, seconds=self.rng.uniform(0.1, 2.0))
        if not self.rules.acknowledged:
            done()

    def _dropped(self, formation: Formation, machine: Machine, generation: Generation, key: str) -> bool:
        """Whether nothing is made of it any more. What was restored stands, whoever gave it up before."""
        own = generation.incarnation == formation.number
        return machine.memory.incarnation != formation.number or (own and key in machine.memory.given_up)

    def _give_up(
        self, formation: Formation, machine: Machine, slot: int, generation: Generation, *, withdraw: bool
    ) -> None:
        """Unless a later incarnation has looked: it may be about to go on from just that. `withdraw`: the
        copies go too.
        """
        if machine.seen > formation.number:
            return
        key = self._key(generation, slot)
        machine.memory.given_up.add(key)
        machine.memory.collect(self.rules)
        if not withdraw:
            return

        def give_back(there: Machine) -> None:
            if there.memory.incarnation == formation.number and there.seen <= formation.number:
                there.memory.given_up.add(key)
                there.memory.collect(self.rules)

        for host in _hosts(formation.members, self.shape.copies)[machine.name]:
            self._call(host, give_back, source=machine.name, seconds=self.rng.uniform(0.1, 2.0))

    def _upload(self, formation: Formation, machine: Machine, slot: int, generation: Generation) -> None:
        links, life = self._links(generation, slot), machine.life
        began = self.kernel.now

        def put() -> None:
            if machine.life != life or not machine.powered or self.kernel.now - began > GIVE_UP_SECONDS:
                return
            there = all(link.id in machine.memory.manifests for link in links)
            if machine.cut or not self.store_up or not there:
                self.kernel.after(AGAIN_SECONDS, put)
                return
            self.store.manifests.update({link.id: link for link in links})  # type: ignore[attr-defined]
            self._prepare(formation, machine, slot, Tier.REMOTE, generation)

        self.kernel.after(self.rng.uniform(0.2, 3.0), put)

    # Commits: every slot asks the agent of slot 0 until it is answered.

    def _lead(self, formation: Formation) -> None:
        """The agent of slot 0 begins, or begins anew, to gather."""
        first = self.machines[formation.members[0]]
        formation.life = first.life
        slots = len(formation.members) - self.rules.absent
        planned = Planned(formation.number, slots)
        formation.states = {tier: commit.step(CommitState(), planned, self.kernel.now).state for tier in Tier}
        formation.shards = {}

    def _prepare(
        self, formation: Formation, machine: Machine, slot: int, tier: Tier, generation: Generation
    ) -> None:
        key, life, began = self._key(generation, slot), machine.life, self.kernel.now
        answered: list[Verdict] = []

        def answer(verdict: Verdict, record: Record | None) -> None:
            if answered or machine.life != life:
                return
            if verdict is not Verdict.EXPIRED:
                answered.append(verdict)
            self._decided(formation, machine, slot, generation, tier, verdict, record)

        def ask() -> None:
            if answered or machine.life != life or not machine.powered or key not in machine.memory.manifests:
                return
            if tier is Tier.LOCAL and self.kernel.now - began > GIVE_UP_SECONDS:
                # Undecided is not refused: others may know that it stands, and count on the copies.
                self._give_up(formation, machine, slot, generation, withdraw=False)
                return
            if self._dropped(formation, machine, generation, key):
                return
            if self.rules.refusals and machine.seen > formation.number:
                return
            # Who holds a copy without the record would not know that it is worth anything.
            if tier is Tier.LOCAL or generation in machine.memory.records or not self.rules.recorded:
                self._ask(formation, machine, slot, tier, generation, key, answer)
            self.kernel.after(AGAIN_SECONDS, ask)

        ask()

    def _ask(
        self,
        formation: Formation,
        machine: Machine,
        slot: int,
        tier: Tier,
        generation: Generation,
        key: str,
        answer: Callable[[Verdict, Record | None], None],
    ) -> None:
        def gather(first: Machine) -> None:
            self._gather(formation, first, slot, tier, generation, key, machine, answer)

        self._call(formation.members[0], gather, source=machine.name)

    def _gather(
        self,
        formation: Formation,
        first: Machine,
        slot: int,
        tier: Tier,
        generation: Generation,
        key: str,
        source: Machine,
        answer: Callable[[Verdict, Record | None], None],
    ) -> None:
        """At the agent of slot 0."""

        def reply(verdict: Verdict) -> None:
            record = first.memory.records.get(generation)
            self._call(source.name, lambda _: answer(verdict, record), source=first.name)

        if formation.life != first.life:
            self._lead(formation)
        known = first.memory.records.get(generation)
        mark = first.memory.marks.get(tier)
        if known is not None and mark is not None and mark >= generation:
            reply(Verdict.COMMITTED)
            return
        state = formation.states[tier]
        if self.rules.refusals:
            state = commit.step(state, Seen(first.seen), self.kernel.now).state
        state = commit.step(state, Tick(), self.kernel.now).state
        formation.shards.setdefault(generation, {})[slot] = key
        restored = generation.incarnation < formation.number
        own = Generation(formation.number, START_STEP) if restored else generation
        result = commit.step(state, Prepare(slot, own), self.kernel.now)
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
        if tier is not Tier.LOCAL and generation not in memory.records:
            return  # it stands nowhere yet
        if tier is Tier.LOCAL:
            keys = formation.shards.get(generation, {})
            shards = {str(slot): keys[slot] for slot in sorted(keys)}
            memory.records[generation] = Record(generation, formation.last, shards, len(formation.members))
            formation.last = generation
        if tier is Tier.REMOTE:
            newest = max(self.store.branches, default=0) if self.rules.branches else 0
            if first.cut or not self.store_up or newest > generation.incarnation:
                return
            self.store.records[generation] = memory.records[generation]  # type: ignore[index]
        memory.marks = advance(memory.marks, tier, generation)
        memory.collect(self.rules)
        if tier is Tier.PEER and generation == start:
            self.truth.losses[generation] = formation.lost
        if self.now is formation:
            self.truth.advance(tier, generation)
        done = commit.step(formation.states[tier], Recorded(own), self.kernel.now)
        formation.states[tier] = done.state

    def _decided(
        self,
        formation: Formation,
        machine: Machine,
        slot: int,
        generation: Generation,
        tier: Tier,
        verdict: Verdict,
        record: Record | None,
    ) -> None:
        """At the agent of any slot."""
        memory = machine.memory
        if memory.incarnation != formation.number:
            return
        if verdict is Verdict.COMMITTED and record is not None:
            memory.records[record.generation] = record
            memory.marks = advance(memory.marks, tier, record.generation)
            memory.collect(self.rules)
        elif verdict is Verdict.STALE and tier is Tier.LOCAL:
            self._give_up(formation, machine, slot, generation, withdraw=True)

    # Messages.

    def _answers(self, machine: Machine) -> bool:
        return machine.up and not machine.cut

    def _reach(self, source: str, target: str) -> bool:
        """Nodes that are cut off still reach one another."""
        return source in ("", target) or self.machines[source].cut == self.machines[target].cut

    def _call(
        self, target: str, act: Callable[[Machine], None], source: str = "", seconds: float = 0.0
    ) -> None:
        """A message, which may get lost or come twice."""
        times = 1
        if source != target and source:
            chance = self.rng.random()
            times = 0 if chance < self.shape.loss else 2 if chance > 1 - self.shape.loss else 1
        there = self.machines[target]
        life = there.life
        for _ in range(times):

            def arrive() -> None:
                if there.up and there.life == life and self._reach(source, target):
                    act(there)

            self.kernel.after(seconds + self.rng.uniform(0.001, 0.2), arrive)


@lru_cache(maxsize=1024)
def _hosts(members: tuple[str, ...], copies: int) -> Mapping[str, tuple[str, ...]]:
    return {name: one.hosts for name, one in place([Host(name) for name in members], copies).items()}
