"""Saves that are segments of the ranks' journals, where those are fewer bytes than full saves."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.buffers import RankBuffers
from convoy_workloads.runtime.tiers.in_flight_save import SEAL_SECONDS, InFlightSave, Written
from convoy_workloads.runtime.tiers.memory_client import MemoryClient
from convoy_workloads.runtime.tiers.rank_collectives import RankGroup, all_true, gather
from convoy_workloads.runtime.tiers.save_status import SaveStatus

if TYPE_CHECKING:
    from convoy_workloads.runtime.journal.journal import Journal
    from convoy_workloads.runtime.tiers.planning import RankPlan

SEGMENTS_AGAIN_SECONDS = 60.0
"""Between two tries to get memory for segments that there was not."""


class JournalSaves:
    """Of one rank: has a journal when every rank has one of the same gradients."""

    def __init__(
        self,
        ranks: RankGroup,
        client: MemoryClient,
        status: SaveStatus,
        worker: BackgroundWorker,
        buffers: RankBuffers,
        save: InFlightSave,
    ) -> None:
        self._rank = ranks.rank
        self._world = ranks.world
        self._group = ranks.gloo
        self._client = client
        self._status = status
        self._worker = worker
        self._buffers = buffers
        self._save = save
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

    def start(self, model: Any, optimizer: Any) -> None:
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

    def extend(self, state: dict[str, Any], step: int, rank_plan: RankPlan | None) -> Written | None:
        """Closes the open segment, when all ranks have one that follows the newest save; else None.

        `dealt`: who writes what of a full save. When it fails on a rank, it raises on all.
        """
        journal = self._journal
        if journal is None or not all_true(lambda: journal.ready and not self._save.failed, self._group):
            return None
        from convoy_workloads.runtime.tiers import planning  # noqa: PLC0415

        closed: tuple[str, int] | None = None

        def closes() -> bool:
            nonlocal closed
            snapshot = planning.StateSnapshot(state)
            if rank_plan is not None and rank_plan.structure == snapshot.structure:
                closed = journal.seal(snapshot, rank_plan, planning.facts(step, self._world))
            return closed is not None

        every = False
        try:
            every = all_true(closes, self._group)
        finally:
            if not every:
                journal.end("a rank could not write its part")
        if not every or closed is None or rank_plan is None:
            self._report_inexact(journal.check())
            return None
        buffer, length = closed
        written = Written(
            Generation(self._save.incarnation, step), buffer, length, rank_plan.plan, journal.tip
        )
        self._save.start_write(buffer, written.generation)
        journal.on_segment_saved(written.generation, length)
        self._save.finish_write(written)
        return written

    def on_full_save(self, generation: Generation) -> None:
        """A full save is copied: what the journal has made since the last one is looked at."""
        if self._journal is None:
            return
        self._report_inexact(self._journal.check())
        self._journal.on_full_save(generation)

    def open_next(self, step: int, full: int) -> None:
        """After a save: lets the coming steps be written, if that makes the next save smaller.

        `full`: bytes of a full save.
        """
        self._gap, self._saved = step - self._saved if self._saved else 0, step
        journal = self._journal
        if journal is None or not self._gap or not journal.is_worthwhile(self._gap, full):
            return
        size = journal.capacity(self._gap)
        fitting = self._buffers.segments(size)
        name = next((one for one in self._status.segments if one in fitting), "")
        if name:
            journal.open(name, self._buffers.bytes(name), self._gap)
        elif not fitting and time.monotonic() - self._refused >= SEGMENTS_AGAIN_SECONDS:
            self._refused = time.monotonic()
            self._buffers.want_segments(journal.buffers(self._gap, full), size)

    def _report_inexact(self, found: str) -> None:
        if found:
            log_line(f"JOURNAL INEXACT: {found} is not what its gradients make; full checkpoints come next")
            self._worker.submit(self._send_inexact, found)

    def _send_inexact(self, what: str) -> None:
        self._client.request({"type": "inexact", "what": what[:512]}, SEAL_SECONDS)
