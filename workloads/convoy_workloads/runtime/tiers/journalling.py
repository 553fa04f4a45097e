"""Saves that are segments of the ranks' journals, where those are fewer bytes than full saves."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.saying import say
from convoy_workloads.runtime.tiers.beside import Beside
from convoy_workloads.runtime.tiers.flight import SEAL_SECONDS, Flight, Written
from convoy_workloads.runtime.tiers.line import MemoryLine
from convoy_workloads.runtime.tiers.slots import Slots
from convoy_workloads.runtime.tiers.together import RankGroup, all_hold, gather
from convoy_workloads.runtime.tiers.watch import Watch

if TYPE_CHECKING:
    from convoy_workloads.runtime.journal.journal import Journal
    from convoy_workloads.runtime.tiers.planning import Dealt

SEGMENTS_AGAIN_SECONDS = 60.0
"""Between two tries to get memory for segments that there was not."""


class Journalling:
    """Of one rank: has a journal when every rank has one of the same gradients."""

    def __init__(
        self,
        ranks: RankGroup,
        line: MemoryLine,
        watch: Watch,
        beside: Beside,
        slots: Slots,
        flight: Flight,
    ) -> None:
        self._rank = ranks.rank
        self._world = ranks.world
        self._group = ranks.gloo
        self._line = line
        self._watch = watch
        self._beside = beside
        self._slots = slots
        self._flight = flight
        self._journal: Journal | None = None
        self._refused = -SEGMENTS_AGAIN_SECONDS
        self._saved = 0
        """Step of the newest save; 0 before."""
        self._gap = 0
        """Steps between the two newest saves."""

    @property
    def writing(self) -> bool:
        """Whether the coming steps go to a segment."""
        return self._journal is not None and self._journal.writing

    def begin(self, model: Any, optimizer: Any) -> None:
        """Looks at what is to be trained. All ranks call it."""
        from convoy_workloads.runtime.journal.allowed import Refused  # noqa: PLC0415
        from convoy_workloads.runtime.journal.journal import Journal  # noqa: PLC0415

        journal = None
        if optimizer is not None:
            with contextlib.suppress(Refused):
                journal = Journal(self._rank, self._world, model, optimizer)
        structure = journal.structure if journal is not None else ""
        self._journal = journal if set(gather(structure, self._group)) == {structure} else None

    def end(self, reason: str) -> None:
        """The next save is a full one."""
        if self._journal is not None:
            self._journal.end(reason)

    def extend(self, state: dict[str, Any], step: int, dealt: Dealt | None) -> Written | None:
        """Closes the open segment, when all ranks have one that follows the newest save; else None.

        `dealt`: who writes what of a full save. When it fails on a rank, it raises on all.
        """
        journal = self._journal
        if journal is None or not all_hold(lambda: journal.ready and not self._flight.lost, self._group):
            return None
        from convoy_workloads.runtime.tiers import planning  # noqa: PLC0415

        closed: tuple[str, int] | None = None

        def closes() -> bool:
            nonlocal closed
            taken = planning.Taken(state)
            if dealt is not None and dealt.structure == taken.structure:
                closed = journal.seal(taken, dealt, planning.facts(step, self._world))
            return closed is not None

        every = False
        try:
            every = all_hold(closes, self._group)
        finally:
            if not every:
                journal.end("a rank could not write its part")
        if not every or closed is None or dealt is None:
            self._look(journal.check())
            return None
        slot, length = closed
        written = Written(Generation(self._flight.incarnation, step), slot, length, dealt.plan, journal.tip)
        self._flight.writing(slot, written.generation)
        journal.sealed(written.generation, length)
        self._flight.wrote(written)
        return written

    def based(self, generation: Generation) -> None:
        """A full save is copied: what the journal has made since the last one is looked at."""
        if self._journal is None:
            return
        self._look(self._journal.check())
        self._journal.based(generation)

    def go_on(self, step: int, full: int) -> None:
        """After a save: lets the coming steps be written, if that makes the next save smaller.

        `full`: bytes of a full save.
        """
        self._gap, self._saved = step - self._saved if self._saved else 0, step
        journal = self._journal
        if journal is None or not self._gap or not journal.pays(self._gap, full):
            return
        size = journal.capacity(self._gap)
        fitting = self._slots.segments(size)
        name = next((one for one in self._watch.segments if one in fitting), "")
        if name:
            journal.open(name, self._slots.bytes(name), self._gap)
        elif not fitting and time.monotonic() - self._refused >= SEGMENTS_AGAIN_SECONDS:
            self._refused = time.monotonic()
            self._slots.want_segments(journal.slots(self._gap, full), size)

    def _look(self, found: str) -> None:
        if found:
            say(f"JOURNAL INEXACT: {found} is not what its gradients make; full checkpoints come next")
            self._beside.begin(self._tell_inexact, found)

    def _tell_inexact(self, what: str) -> None:
        self._line.ask({"type": "inexact", "what": what[:512]}, SEAL_SECONDS)
