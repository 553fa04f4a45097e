"""Checkpoints in the memory of nodes: ranks copy their shares into slots, the agents do the rest."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from convoy_workloads.runtime.errors import DataError, PeerLost
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.lineage import Generation, Record
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.saying import say
from convoy_workloads.runtime.tiers.line import Area, Away, MemoryLine
from convoy_workloads.runtime.tiers.sizes import SPARE
from convoy_workloads.runtime.tiers.watch import LOCAL, PEER, REMOTE, Watch

RESTORE_SECONDS = 240.0
"""For the agents to agree on what to go on from, and for each shard to be fetched."""
SEAL_SECONDS = 60.0
SEAL_AGAIN_SECONDS = 3600.0
"""For an agent to come back that was away when a slot was written."""
RESERVE_AGAIN_SECONDS = 15.0
"""Between two tries to get memory that there was not."""
RING_AGAIN_SECONDS = 60.0
"""The same, for a journal's segments."""
DECISION_SECONDS = 120.0
"""For a generation to be committed that is waited for."""
END_SECONDS = 1800.0
"""For the state that the job ends with to get to its store."""
ATTEMPTS = 8
"""Restores that may fail because a shard turns out to be broken."""
PLANNED = "by the program"
"""Stands for the plan of a generation that the program has planned, anew for each."""
_COMPLAIN_SECONDS = 60.0


class Told:
    """What the agent says of its own accord: that this incarnation is over."""

    def __init__(self) -> None:
        self.stale = False

    def on_message(self, message: Message) -> None:
        """Takes a message."""
        if message["type"] == "refused":
            self.stale = True

    def pending(self) -> list[Message]:
        """Nothing has to be said again: the agent asks for what it needs."""
        return []


class MemoryCheckpoints:
    """Of one rank. One save at a time; the training waits for the copy alone."""

    def __init__(self, place: Place, group: Any = None) -> None:
        """`group`: gloo, all ranks; None when alone."""
        self.incarnation = place.incarnation
        self.commits = Told()
        self.stall_seconds = 0.0
        """For which the newest full save held the training up; not the last, which may wait for a slot."""
        self._rank = place.rank
        self._world = place.world
        self._seconds = place.checkpoint_seconds
        self._group = group
        hello: Message = {
            "type": "hello",
            "role": "memory",
            "incarnation": place.incarnation,
            "rank": place.rank,
        }
        self._line = MemoryLine(place.socket, hello)
        self._watch = Watch(MemoryLine(place.socket, hello))
        self._last = time.monotonic()
        self._complained = -_COMPLAIN_SECONDS
        self._areas: dict[str, Area] = {}
        self._copies = 0
        self._dealt: Any = None
        self._flying: Generation | None = None
        self._thread: threading.Thread | None = None
        self._begun = False
        self._end = False
        self._remote = "remote" in place.tiers
        self._slot = ""
        self._size = 0
        self._tried = 0.0
        self._trouble = ""
        self._shards: list[Any] = []
        self._journal: Any = None
        """Of this rank; None when any rank has none."""
        self._ring: dict[str, Area] = {}
        """Slots for its segments."""
        self._refused = -RING_AGAIN_SECONDS
        self._saved = 0
        self._gap = 0
        """Steps between the two newest saves."""
        self._length = 0
        self._extends: Generation | None = None
        self._lost = False
        """Whether a save that a segment would follow has failed."""
        self._later: list[tuple[Area, int]] = []
        """What is restored behind the full save: files of segments, and their lengths."""
        self._segments: list[Any] = []

    # When.

    @property
    def marks_the_end(self) -> bool:
        """Whether what the job ends with is saved otherwise than the rest: for the store, in any case."""
        return self._remote

    @property
    def interval(self) -> float:
        """Seconds between two saves: as the agent last said, or else as this process was told."""
        return self._watch.interval or self._seconds

    @property
    def copy_seconds(self) -> float:
        """From the beginning of the newest save that has its copies (without any: that is committed) until it
        had; 0 before the first.
        """
        return self._watch.took(PEER if self._copies else LOCAL)

    def due(self) -> bool:
        """Whether this rank wishes a save now. Rank 0 wishes for all."""
        return self._rank == 0 and time.monotonic() - self._last >= self.interval

    def busy(self) -> bool:
        """Whether this rank has nowhere to write now: its last save is still being copied to other nodes, or
        there is no memory for it.
        """
        if not self._begun:
            return False  # whoever saves without having restored is told so
        if self._working():
            return True
        if self._journal is not None and self._journal.writing:
            return False
        if self._watch.slot in self._areas and not self._short():
            return False
        if self._short() and time.monotonic() - self._tried >= RESERVE_AGAIN_SECONDS:
            self._begin(self._reserve, self._size)
        late = time.monotonic() - self._last - max(self.interval, 30.0)
        if self.due() and late > 0:
            self._complain(self._trouble or "the last checkpoint is still being copied to other nodes")
        return True

    def _short(self) -> bool:
        """Whether there is less memory than was asked for."""
        return min((len(area.bytes) for area in self._areas.values()), default=0) < self._size

    # Saving.

    def ready(self, model: Any, optimizer: Any) -> None:
        """Has memory made ready for the first save, beside the training."""
        from convoy_workloads.runtime.tiers.sizes import guess  # noqa: PLC0415

        self._begun = True
        self._watch.start()
        self._journal = self._journal_of(model, optimizer)
        self._begin(self._reserve, guess(model, optimizer, self._world))

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Copies the rank's share, or closes its journal's segment; all ranks call it at the same step, while
        none is `busy`. False: not saved now, the memory has to be made larger first.
        """
        generation = self._extend(state, step)
        if generation is None:
            generation = self._copy(state, step, wait=0.0)
            if generation is None:
                return False
            self._based(generation)
        self._gap, self._saved = step - self._saved if self._saved else 0, step
        self._begin(self._seal, generation)
        self._open()
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float, *, end: bool = False
    ) -> Generation | None:
        """The half of the last save that needs the process group. None: there is nowhere to write it.

        `end`: the job ends with it. Then it goes to the store, where there is one.
        """
        self._end = end
        generation = Generation(self.incarnation, step)
        if self._flying == generation:
            return generation
        began = time.monotonic()
        if self._journal is not None:
            self._journal.end("the last save is a full one")
        self._join(timeout)
        copied = self._copy(state, step, wait=max(0.0, timeout - (time.monotonic() - began)))
        if copied is not None:
            self._begin(self._seal, copied)
        return copied

    def finish_last(self, staged: Generation | None, timeout: float = DECISION_SECONDS) -> bool:
        """The other half, and the decision. Whether the last step is committed."""
        if staged is None:
            say(f"RANK {self._rank} COULD NOT SAVE THE LAST STEP: {self._trouble or 'no slot was free'}")
            return False
        return self.settle(timeout)

    def settle(self, timeout: float = DECISION_SECONDS) -> bool:
        """Waits until the save in flight stands, on other nodes too where copies are made. Whether it is
        committed, or there is none.
        """
        deadline = time.monotonic() + timeout
        self._join(timeout)
        if self._flying is None:
            return True
        stands = self._watch.settled(self._flying, LOCAL, max(0.0, deadline - time.monotonic()))
        if not stands:
            say(f"checkpoint {self._flying.name} is not committed: the job would continue from an older one")
        elif self._copies:
            copied = self._watch.settled(self._flying, PEER, max(0.0, deadline - time.monotonic()))
            if not copied and self._rank == 0:
                say(f"checkpoint {self._flying.name} is on one node each: copies are not complete")
        if stands and self._end and self._remote:
            self._in_store(self._flying)
        return stands

    def _in_store(self, generation: Generation) -> None:
        """Waits until what the job ends with is in its store; says so when it is not."""
        brought = self._watch.uploads(generation) and self._watch.settled(generation, REMOTE, END_SECONDS)
        if not brought and self._rank == 0:
            say(f"checkpoint {generation.name} IS NOT IN THE STORE: it goes with the job's memory")

    def _copy(self, state: dict[str, Any], step: int, wait: float) -> Generation | None:
        """Copies the share into a slot. None when any rank has nowhere to write.

        DataError when the program has restored nothing: its agent does not know where this run begins.
        """
        if not self._begun:
            raise DataError("job.restore(model=...) comes before the first checkpoint")
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        taken = planning.Taken(state)
        facts = planning.facts(step, self._world)
        dealt = self._dealt
        fits = dealt is not None and dealt.structure == taken.structure
        if not self._all(fits and shard.fits(dealt.layout, taken.texts(dealt), facts)):
            dealt = self._dealt = planning.deal(taken, self._group)
        short = bool(self._areas) and min(len(one.bytes) for one in self._areas.values()) < dealt.layout.size
        if short or not self._areas:
            self._begin(self._reserve, dealt.layout.size)
            self._join(wait)
        if wait and not self._watch.slot:
            self._watch.wait_slot(wait)
        slot = self._watch.slot
        area = self._areas.get(slot)
        if not self._all(area is not None and len(area.bytes) >= dealt.layout.size) or area is None:
            return None
        flying = Generation(self.incarnation, step)
        self._watch.writing(slot, flying)
        shard.write(area.bytes, dealt.layout, taken.tensors(dealt), taken.texts(dealt), facts)
        self._slot, self._length, self._extends = slot, dealt.layout.size, None
        self._flying = flying
        self._last = time.monotonic()
        if not wait:
            self.stall_seconds = self._last - began
        return self._flying

    def _seal(self, generation: Generation) -> None:
        import torch  # noqa: PLC0415

        follows, self._lost = self._extends, True  # unless the agent says otherwise
        question: Message = {
            "type": "seal",
            "slot": self._slot,
            "step": generation.step,
            "length": self._length,
            "extends": None if follows is None else [follows.incarnation, follows.step],
            "world": self._world,
            "torch": str(torch.__version__),
            "plan": self._dealt.plan,
            "last": self._end,
        }
        answer: Message = {}
        deadline = time.monotonic() + SEAL_AGAIN_SECONDS
        # Until it is known what became of the slot it cannot be written: the agent may be looking at it.
        while not answer and not self.commits.stale:
            try:
                answer, _ = self._line.ask(question, SEAL_SECONDS)
            except Away:
                if time.monotonic() > deadline:
                    raise
        self._watch.written()
        self._lost = not answer or answer["type"] != "sealed"
        if answer and self._lost:
            say(f"CHECKPOINT {generation.name} FAILED: {answer.get('why')}")

    def _reserve(self, size: int) -> None:
        self._size, self._tried = size, time.monotonic()
        answer, areas = self._slots({"type": "reserve", "size": size})
        if not areas:
            self._trouble = f"no memory for {size} bytes twice: {answer.get('why')}"
            self._complain(self._trouble)
            return
        old, self._areas = self._areas, areas
        self._copies = int(answer.get("copies", 0))
        self._trouble = ""
        for area in old.values():
            area.close()

    def _reserve_ring(self, wanted: tuple[int, int]) -> None:
        """`wanted`: how many segments of how many bytes. Without memory for them all saves are full ones."""
        count, size = wanted
        answer, areas = self._slots({"type": "reserve", "size": size, "segments": count})
        if not areas:
            say(f"no memory for a journal of {count} times {size} bytes: {answer.get('why')}")
        self._ring = areas or self._ring

    def _slots(self, question: Message) -> tuple[Message, dict[str, Area]]:
        """The agent's answer, and the slots that came with it, by name; none when it refused."""
        answer, files = self._line.ask(question, SEAL_SECONDS)
        names = answer.get("names", [])
        if answer["type"] != "slots" or len(files) != len(names):
            for fd in files:
                os.close(fd)
            return answer, {}
        return answer, {name: Area(fd, write=True) for name, fd in zip(names, files)}  # noqa: B905

    # The journal.

    def _journal_of(self, model: Any, optimizer: Any) -> Any:
        """This rank's journal, when every rank has one of the same gradients. All ranks call it."""
        from convoy_workloads.runtime.journal.allowed import Refused  # noqa: PLC0415
        from convoy_workloads.runtime.journal.journal import Journal  # noqa: PLC0415

        journal = None
        if optimizer is not None:
            with contextlib.suppress(Refused):
                journal = Journal(self._rank, self._world, model, optimizer)
        structure = journal.structure if journal is not None else ""
        return journal if set(_gather(structure, self._group)) == {structure} else None

    def _extend(self, state: dict[str, Any], step: int) -> Generation | None:
        """Closes the open segment, when all ranks have one that follows the newest save; else None."""
        journal = self._journal
        if journal is None or not self._all(journal.ready and not self._lost):
            return None
        from convoy_workloads.runtime.tiers import planning  # noqa: PLC0415

        taken, dealt, closed = planning.Taken(state), self._dealt, None
        if dealt.structure == taken.structure:
            closed = journal.seal(taken, dealt, planning.facts(step, self._world))
        if not self._all(closed is not None) or closed is None:
            journal.end("a rank could not write its part")
            return None
        flying = Generation(self.incarnation, step)
        self._slot, self._length = closed
        self._extends = journal.tip
        self._watch.writing(self._slot, flying)
        journal.sealed(flying, self._length)
        self._flying = flying
        self._last = time.monotonic()
        return flying

    def _based(self, generation: Generation) -> None:
        """A full save is copied: what the journal has made since the last one is looked at."""
        if self._journal is None:
            return
        if found := self._journal.check():
            say(f"JOURNAL INEXACT: {found} is not what its gradients make; full checkpoints come next")
            self._begin(self._tell_inexact, found)
        self._journal.based(generation)

    def _tell_inexact(self, what: str) -> None:
        self._line.ask({"type": "inexact", "what": what[:512]}, SEAL_SECONDS)

    def _open(self) -> None:
        """Lets the coming steps be written, if that makes the next save smaller."""
        journal, full = self._journal, self._dealt.layout.size
        if journal is None or not self._gap or not journal.pays(self._gap, full):
            return
        size = journal.capacity(self._gap)
        fitting = [name for name, area in self._ring.items() if len(area.bytes) >= size]
        name = next((one for one in self._watch.segments if one in fitting), "")
        if name:
            journal.open(name, self._ring[name].bytes)
        elif not fitting and time.monotonic() - self._refused >= RING_AGAIN_SECONDS:
            self._refused = time.monotonic()
            self._begin(self._reserve_ring, (journal.slots(self._gap, full), size))

    # Restoring.

    @property
    def journalled(self) -> bool:
        """Whether what is restored ends in a journal: `load` is followed by `replay` and `overlay` then."""
        return bool(self._segments)

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """What all ranks go on from; None to begin at step 0. Every shard is here then.

        `optimizer` with the model's parameters: what a journal would be replayed through.
        PeerLost when the agents do not agree in time, or a later incarnation has begun.
        """
        broken: list[list[str]] = []
        bases = False
        for attempt in range(ATTEMPTS):
            answer = self._ask({"type": "restore", "attempt": attempt, "broken": broken, "bases": bases})
            if answer["message"] and self._rank == 0:
                say(f"RESTORING: {answer['message']}")
            troubles = self._fetch(answer)
            refusal = "" if troubles else self._refusal(model, optimizer)
            told = list(_gather((answer["generation"], troubles, refusal), self._group))
            if any(generation != answer["generation"] for generation, *_ in told):
                raise PeerLost("the ranks were not told of the same generation")
            broken += [one for _, found, _ in told for one in found if one not in broken]
            refusals = [one for *_, one in told if one]
            if refusals and self._rank == 0:
                say(f"NOT REPLAYED, the last full checkpoint is taken: {refusals[0]}")
            bases = bases or bool(refusals)
            if refusals or any(found for _, found, _ in told):
                self._drop()
                continue
            if answer["generation"] is None:
                if answer["lost"] and self._rank == 0:
                    say("NO CHECKPOINT IS WHOLE ANY MORE: the job begins at step 0")
                self._ask({"type": "restored"})
                return None
            pair = answer["generation"]
            return Record(Generation(int(pair[0]), int(pair[1])), None, answer["world"], answer["torch"])
        raise PeerLost(f"{ATTEMPTS} checkpoints could not be read")

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Reads the chosen generation's full save into `state`."""
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, [one for one, _ in self._shards])
        if not self.journalled:
            self._read()

    def replay(self, model: Any, optimizer: Any) -> None:
        """Takes the program's objects, which hold the full save, through the steps behind it."""
        from convoy_workloads.runtime.journal.journal import parameters_of  # noqa: PLC0415
        from convoy_workloads.runtime.journal.replay import replay  # noqa: PLC0415

        steps = replay(optimizer, parameters_of(model, optimizer), self._segments)
        if self._rank == 0:
            say(f"replayed {steps} steps of the journal")

    def overlay(self, state: dict[str, Any]) -> None:
        """Reads what no step makes, such as generators and buffers, into the state after the replay."""
        from convoy_workloads.runtime.journal.journal import lasts  # noqa: PLC0415
        from convoy_workloads.runtime.tiers import reading  # noqa: PLC0415

        reading.load(state, lasts(self._segments), partial=True)
        self._read()

    def _read(self) -> None:
        self._drop()
        self._ask({"type": "restored"})

    def _refusal(self, model: Any, optimizer: Any) -> str:
        """Why the journal that was fetched cannot be replayed by this rank; empty when it can."""
        if not self._later:
            return ""
        from convoy_workloads.runtime.journal import journal, segment  # noqa: PLC0415

        try:
            self._segments = [segment.read(area.bytes[:length]) for area, length in self._later]
        except segment.SegmentError as error:
            return str(error)
        return journal.refusal(model, optimizer, self._segments)

    def _fetch(self, answer: Message) -> list[list[str]]:
        """Maps every shard; those that nobody can read any more."""
        from convoy_workloads.runtime.tiers import shard  # noqa: PLC0415

        names = answer["shards"]
        first = self._rank % max(1, len(names))
        # Each begins elsewhere, or all would ask one node at a time.
        for name in [*names[first:], *names[:first]]:
            found, files = self._ask_files({"type": "shard", "shard": name})
            areas = [Area(fd, write=False) for fd in files]
            if found["type"] == "broken":
                return [list(one) for one in found["broken"]]
            self._shards.append((shard.read(areas[0].bytes[: found["lengths"][0]]), areas[0]))
            self._later += zip(areas[1:], found["lengths"][1:])  # noqa: B905
        return []

    def _drop(self) -> None:
        areas = [*(area for _, area in self._shards), *(area for area, _ in self._later)]
        self._shards, self._later, self._segments = [], [], []
        for area in areas:
            area.close()

    # Inside.

    def _ask(self, question: Message) -> Message:
        return self._ask_files(question)[0]

    def _ask_files(self, question: Message) -> tuple[Message, list[int]]:
        try:
            answer, files = self._line.ask(question, RESTORE_SECONDS)
        except Away as error:
            raise PeerLost(str(error)) from error
        if answer["type"] in ("failed", "refused"):
            raise PeerLost(f"no checkpoint from the node's memory: {answer.get('why')}")
        return answer, files

    def _begin(self, work: Any, argument: Any) -> None:
        """Does it on another thread, after what is being done there."""
        before = self._thread

        def run() -> None:
            if before is not None:
                before.join()
            try:
                work(argument)
            except Exception as error:  # the training goes on without
                self._trouble = f"{type(error).__name__}: {error}"
                self._complain(self._trouble)

        self._thread = threading.Thread(target=run, name="convoy-save", daemon=True)
        self._thread.start()

    def _working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _join(self, seconds: float = DECISION_SECONDS) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_SECONDS:
            self._complained = now
            say(f"RANK {self._rank} CANNOT SAVE: {why}")

    def _all(self, holds: bool) -> bool:
        """Whether it holds on every rank."""
        if self._group is None:
            return holds
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415

        flag = torch.tensor([int(not holds)])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group)
        return not int(flag.item())

    # For programs that plan their saves themselves (runtime/adapters/dcp.py). Nothing of it uses the group.

    @property
    def begun(self) -> bool:
        """Whether it is settled what this run goes on from, so that it may save."""
        return self._begun

    @property
    def shards(self) -> list[Any]:
        """What `choose` has found, until `done_reading`."""
        return [one for one, _ in self._shards]

    def done_reading(self) -> None:
        """Everything that is needed of what `choose` has found is read: this rank may save from now on.
        Again it does nothing. PeerLost.
        """
        if self._begun:
            return
        size = sum(len(one.bytes) for one in self.shards) // self._world
        if self._shards:
            self._read()
        self._begun = True
        self._watch.start()
        self._begin(self._reserve, size + SPARE)

    def make_room(self, size: int) -> str:
        """Has the slots hold `size` bytes at least. Why that cannot be; empty when they do."""
        self._join(SEAL_SECONDS)
        if self._working():
            return "the save before is not sealed yet"
        if self._room() < size:
            self._begin(self._reserve, size)
            self._join(SEAL_SECONDS)
        return "" if self._room() >= size else self._trouble or "the agent is away"

    def free(self, seconds: float) -> bool:
        """Whether a slot can be written, within so many seconds. PeerLost when a later incarnation of the job
        exists.
        """
        if self.commits.stale:
            raise PeerLost("a later incarnation of this job exists")
        self._watch.wait_slot(seconds)
        return self._watch.slot in self._areas

    def put(self, items: Any, tensors: Any, texts: dict[str, str], step: int, *, last: bool = False) -> str:
        """Copies the tensors of `items` and `texts`, by name, into a free slot; it is sealed beside the
        training. Why that cannot be; empty when it is done. ValueError for a step not beyond the last one.

        `last`: the job ends with it.
        """
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        generation = Generation(self.incarnation, step)
        if self._flying is not None and generation <= self._flying:
            raise ValueError(f"step {step} is not beyond step {self._flying.step}, which was saved before")
        facts = planning.facts(step, self._world)
        layout = planning.placed(items, texts)
        before = None if self._dealt is None else self._dealt.layout
        if before is not None and layout.resembles(before) and shard.fits(before, texts, facts):
            layout = before
        if why := self.make_room(layout.size):
            return why
        slot = self._watch.slot
        area = self._areas.get(slot)
        if area is None:
            return "no slot is free"
        self._watch.writing(slot, generation)
        try:
            shard.write(area.bytes, layout, tensors, texts, facts)
        except BaseException:
            self._watch.written()
            raise
        self._dealt = planning.Dealt("", (), (), layout, PLANNED)
        self._slot, self._length, self._extends = slot, layout.size, None
        self._flying, self._end = generation, last
        self._last = time.monotonic()
        self.stall_seconds = self._last - began
        self._begin(self._seal, generation)
        return ""

    def _room(self) -> int:
        return min((len(area.bytes) for area in self._areas.values()), default=0)


def _gather(value: Any, group: Any) -> Iterable[Any]:
    """What every rank has."""
    if group is None:
        return [value]
    import torch.distributed as dist  # noqa: PLC0415

    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found
