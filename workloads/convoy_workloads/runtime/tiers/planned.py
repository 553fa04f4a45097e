"""Saves that a program plans itself (runtime/adapters/dcp.py). Nothing here uses the ranks' group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.errors import PeerLost, StepAbandoned
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.tiers.beside import Beside
from convoy_workloads.runtime.tiers.flight import SEAL_SECONDS, Flight, Written
from convoy_workloads.runtime.tiers.restoring import Restoring
from convoy_workloads.runtime.tiers.sizes import SPARE
from convoy_workloads.runtime.tiers.slots import Slots
from convoy_workloads.runtime.tiers.told import Told

if TYPE_CHECKING:
    from convoy_workloads.runtime.tiers.shard import Layout

PLANNED = "by the program"
"""Stands for the plan of a generation that the program has planned, anew for each."""


class PlannedSaves:
    """Of one rank."""

    def __init__(
        self, place: Place, beside: Beside, slots: Slots, flight: Flight, restoring: Restoring, told: Told
    ) -> None:
        self._world = place.world
        self._beside = beside
        self._slots = slots
        self._flight = flight
        self._restoring = restoring
        self._told = told
        self._layout: Layout | None = None
        """Of the newest save."""

    @property
    def begun(self) -> bool:
        """Whether it is settled what this run goes on from, so that it may save."""
        return self._slots.begun

    @property
    def shards(self) -> list[Any]:
        """What is gone on from, until `done_reading`."""
        return self._restoring.shards

    def done_reading(self) -> None:
        """Everything that is needed of `shards` is read: this rank may save from now on. Again it does
        nothing. PeerLost.
        """
        if self.begun:
            return
        size = sum(len(one.bytes) for one in self.shards) // self._world
        if self.shards:
            self._restoring.done()
        self._slots.begin(size + SPARE)

    def make_room(self, size: int) -> str:
        """Has the slots hold `size` bytes at least. Why that cannot be; empty when they do."""
        self._beside.join(SEAL_SECONDS)
        if self._beside.working:
            return "the save before is not sealed yet"
        if self._slots.room < size:
            self._slots.want(size)
            self._beside.join(SEAL_SECONDS)
        return "" if self._slots.room >= size else self._beside.trouble or "the agent is away"

    def free(self, seconds: float) -> bool:
        """Whether a slot can be written, within so many seconds. PeerLost when a later incarnation of the job
        exists.
        """
        if self._told.stale:
            raise PeerLost("a later incarnation of this job exists")
        return self._slots.wait_free(seconds)

    def check(self, step: int) -> None:
        """ValueError for a step that is not beyond the last one, StepAbandoned for one that a rank could not
        save before.
        """
        flight, generation = self._flight, Generation(self._flight.incarnation, step)
        if flight.abandoned(generation):
            raise StepAbandoned(
                f"step {step} was given up, as a rank could not save it: until the job restarts only a later "
                "step can be saved"
            )
        if flight.newest is not None and generation <= flight.newest:
            raise ValueError(f"step {step} is not beyond step {flight.newest.step}, which was saved before")

    def abandon(self, step: int) -> None:
        """This rank could not `put` what others may have put: all give it up. Nothing for a step that was
        put.
        """
        generation = Generation(self._flight.incarnation, step)
        if self._flight.newest is None or generation > self._flight.newest:
            self._flight.abandon(generation)

    def put(self, items: Any, tensors: Any, texts: dict[str, str], step: int, *, last: bool = False) -> str:
        """Copies the tensors of `items` and `texts`, by name, into a free slot; it is sealed beside the
        training. Why that cannot be; empty when it is done. ValueError, StepAbandoned as `check`.

        `last`: the job ends with it.
        """
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        flight = self._flight
        self.check(step)
        generation = Generation(flight.incarnation, step)
        facts = planning.facts(step, self._world)
        layout, before = planning.placed(items, texts), self._layout
        if before is not None and layout.resembles(before) and shard.fits(before, texts, facts):
            layout = before
        making = time.monotonic()
        if why := self.make_room(layout.size):
            return why
        began += time.monotonic() - making
        slot = self._slots.free
        if not slot:
            return "no slot is free"
        flight.writing(slot, generation)
        try:
            shard.write(self._slots.bytes(slot), layout, tensors, texts, facts)
        except BaseException:
            flight.broken()
            raise
        self._layout, flight.ends = layout, last
        written = Written(generation, slot, layout.size, PLANNED)
        flight.wrote(written)
        flight.stall_seconds = flight.at - began
        flight.seal(written)
        return ""
