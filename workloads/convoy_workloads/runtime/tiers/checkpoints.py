"""Checkpoints in the memory of nodes: ranks copy their shares into slots, the agents do the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.checkpointer import DECISION_SECONDS
from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.saying import say
from convoy_workloads.runtime.tiers.beside import Beside
from convoy_workloads.runtime.tiers.flight import Flight, Written
from convoy_workloads.runtime.tiers.journalling import Journalling
from convoy_workloads.runtime.tiers.line import MemoryLine
from convoy_workloads.runtime.tiers.planned import PlannedSaves
from convoy_workloads.runtime.tiers.restoring import Restoring
from convoy_workloads.runtime.tiers.slots import Slots
from convoy_workloads.runtime.tiers.together import RankGroup, all_give, all_hold
from convoy_workloads.runtime.tiers.told import Told
from convoy_workloads.runtime.tiers.watch import LOCAL, PEER, Watch

if TYPE_CHECKING:
    from convoy_workloads.runtime.tiers.planning import Dealt, Taken


class MemoryCheckpoints:
    """Of one rank. One save at a time; the training waits for the copy alone."""

    def __init__(
        self,
        place: Place,
        group: Any = None,
        *,
        line: MemoryLine | None = None,
        watch: Watch | None = None,
        told: Told | None = None,
    ) -> None:
        """`group`: gloo, all ranks; None when alone. `line`, `watch`: others than to the place's socket.
        `told`: what the agent says on the rank's link.
        """
        self.incarnation = place.incarnation
        told = told or Told()
        self._rank = place.rank
        self._world = place.world
        self._seconds = place.checkpoint_seconds
        self._remote = "remote" in place.tiers
        self._group = group
        hello: Message = {
            "type": "hello",
            "role": "memory",
            "incarnation": place.incarnation,
            "rank": place.rank,
        }
        line = line or MemoryLine(place.socket, hello)
        self._watch = watch or Watch(MemoryLine(place.socket, hello))
        self._beside = Beside(place.rank)
        self._slots = Slots(line, self._watch, self._beside)
        self._flight = Flight(place, line, self._watch, self._beside, self._slots, told)
        self._restoring = Restoring(line, place.rank, group)
        self._journalling = Journalling(
            RankGroup(place.rank, place.world, group),
            line,
            self._watch,
            self._beside,
            self._slots,
            self._flight,
        )
        self._dealt: Dealt | None = None
        self.planned = PlannedSaves(place, self._beside, self._slots, self._flight, self._restoring, told)
        """For programs that plan their saves themselves."""

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
    def stall_seconds(self) -> float:
        """For which the newest full save held the training up, without what is done once and not at each; 0
        before the first.
        """
        return self._flight.stall_seconds

    @property
    def copy_seconds(self) -> float:
        """From the beginning of the newest save that has its copies (without any: that is committed) until it
        had; 0 before the first.
        """
        return self._watch.took(PEER if self._slots.copies else LOCAL)

    def due(self) -> bool:
        """Whether this rank wishes a save now. Rank 0 wishes for all."""
        return self._rank == 0 and time.monotonic() - self._flight.at >= self.interval

    def busy(self) -> bool:
        """Whether this rank has nowhere to write now: its last save is still being copied to other nodes, or
        there is no memory for it.
        """
        if not self._slots.begun:
            return False  # whoever saves without having restored is told so
        if self._beside.working:
            return True
        if self._journalling.writing:
            return False
        if self._slots.free and not self._slots.short:
            return False
        self._slots.try_again()
        late = time.monotonic() - self._flight.at - max(self.interval, 30.0)
        if self.due() and late > 0:
            trouble = self._beside.trouble
            self._beside.complain(trouble or "the last checkpoint is still being copied to other nodes")
        return True

    # Saving.

    def ready(self, model: Any, optimizer: Any) -> None:
        """Has memory made ready for the first save, beside the training. All ranks call it."""
        from convoy_workloads.runtime.tiers.sizes import guess  # noqa: PLC0415

        self._journalling.begin(model, optimizer)
        self._slots.begin(guess(model, optimizer, self._world))

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Copies the rank's share, or closes its journal's segment; all ranks call it at the same step, while
        none is `busy`. False: not saved now, the memory has to be made larger first.

        UnsavableError names a value that has no exact form, and then OtherRankFailed says so on all other
        ranks: nothing is saved. A rank that fails later, while it writes, raises alone; the others hear from
        their agents that the step is given up.
        """
        written = self._journalling.extend(state, step, self._dealt)
        if written is None:
            try:
                written = self._copy(state, step, wait=0.0)
            except BaseException:
                self._journalling.end("the save that it would follow has failed")
                raise
            if written is None:
                return False
            self._journalling.based(written.generation)
        self._flight.seal(written)
        assert self._dealt is not None  # noqa: S101 - something is written
        self._journalling.go_on(step, self._dealt.layout.size)
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = DECISION_SECONDS, *, end: bool = False
    ) -> Generation | None:
        """The half of the last save that needs the process group. None: there is nowhere to write it.

        `end`: the job ends with it. Then it goes to the store, where there is one.
        """
        self._flight.ends = end
        generation = Generation(self.incarnation, step)
        if self._flight.newest == generation:
            return generation
        if self._flight.abandoned(generation):
            return None  # the other ranks have saved it, and do not try again
        began = time.monotonic()
        self._journalling.end("the last save is a full one")
        self._beside.join(timeout)
        written = self._copy(state, step, wait=max(0.0, timeout - (time.monotonic() - began)))
        if written is None:
            return None
        self._flight.seal(written)
        return generation

    def finish_last(self, staged: Generation | None, timeout: float = DECISION_SECONDS) -> bool:
        """The other half, and the decision. Whether the last step is committed."""
        if staged is None:
            trouble = self._beside.trouble or "no slot was free, or its save has failed before"
            say(f"RANK {self._rank} COULD NOT SAVE THE LAST STEP: {trouble}")
            return False
        return self.settle(timeout)

    def settle(self, timeout: float = DECISION_SECONDS) -> bool:
        """Waits until the save in flight stands, on other nodes too where copies are made. Whether it is
        committed, or there is none.
        """
        return self._flight.settle(timeout)

    def _copy(self, state: dict[str, Any], step: int, wait: float) -> Written | None:
        """Copies the share into a slot. None when any rank has nowhere to write.

        DataError when the program has restored nothing: its agent does not know where this run begins.
        """
        if not self._slots.begun:
            raise DataError("job.restore(model=...) comes before the first checkpoint")
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        facts = planning.facts(step, self._world)
        taken: Taken | None = None

        def fits() -> bool:
            nonlocal taken
            taken = planning.Taken(state)
            return taken.fits(self._dealt, facts)

        same, dealt = all_hold(fits, self._group), self._dealt
        assert taken is not None  # noqa: S101 - or `fits` has raised
        if not same or dealt is None:
            dealing = time.monotonic()
            dealt = self._dealt = planning.deal(taken, self._group)
            began += time.monotonic() - dealing
        size = dealt.layout.size
        slot = all_give(lambda: self._slot(size, wait), self._group)
        if slot is None:
            return None
        generation = Generation(self.incarnation, step)
        self._flight.writing(slot, generation)
        try:
            shard.write(
                self._slots.bytes(slot), dealt.layout, taken.tensors(dealt), taken.texts(dealt), facts
            )
        except BaseException:
            self._flight.broken()
            self._flight.abandon(generation)
            raise
        written = Written(generation, slot, dealt.layout.size, dealt.plan)
        self._flight.wrote(written)
        if not wait:
            self._flight.stall_seconds = self._flight.at - began
        return written

    def _slot(self, size: int, wait: float) -> str | None:
        """A slot that may be written and holds so many bytes, within `wait` seconds; None without one."""
        if self._slots.room < size:
            self._slots.want(size)
            self._beside.join(wait)
        if wait and not self._watch.slot:
            self._slots.wait_free(wait)
        slot = self._slots.free
        return slot if slot and len(self._slots.bytes(slot)) >= size else None

    # Restoring.

    @property
    def journal(self) -> Restoring | None:
        """What the chosen generation has behind its full save; None without."""
        return self._restoring if self._restoring.journalled else None

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """What all ranks go on from; None to begin at step 0. Every shard is here then. PeerLost,
        StoreAway.

        `optimizer` with the model's parameters: what a journal would be replayed through.
        """
        return self._restoring.choose(model, optimizer)

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Reads the chosen generation's full save into `state`."""
        self._restoring.load(state)
