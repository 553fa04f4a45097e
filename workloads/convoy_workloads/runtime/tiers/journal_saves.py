"""Saves as journal segments, which are used while a segment is smaller than a full save."""

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

RETRY_SECONDS = 60.0
"""Minimum number of seconds before a rank repeats a request for segment buffers that the agent could not
provide.
"""


class JournalSaves:
    """Saves the state of one rank as segments of its journal.

    A rank has a journal only if the parameters of all ranks have the same names, shapes and types.
    """

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
        self._refused_at = -RETRY_SECONDS
        self._saved = 0
        """Number of the step whose state the newest save holds; 0 before the first save."""
        self._gap = 0
        """Number of steps between the two newest saves."""

    @property
    def writing(self) -> bool:
        """True if the coming steps are written to a segment."""
        return self._journal is not None and self._journal.writing

    def start(self, model: Any, optimizer: Any) -> None:
        """Create the journal if the model and the optimizer of every rank allow it. All ranks call this."""
        from convoy_workloads.runtime.journal.allowed import Refused  # noqa: PLC0415
        from convoy_workloads.runtime.journal.journal import Journal  # noqa: PLC0415

        journal = None
        if optimizer is not None:
            with contextlib.suppress(Refused):
                journal = Journal(self._rank, self._world, model, optimizer)
        structure = journal.structure if journal is not None else ""
        self._journal = journal if set(gather(structure, self._group)) == {structure} else None

    def end(self, reason: str) -> None:
        """End the current chain of the journal. The next save is a full save."""
        if self._journal is not None:
            self._journal.end(reason)

    def extend(self, state: dict[str, Any], step: int, rank_plan: RankPlan | None) -> Written | None:
        """Save the state by closing the open segment, which follows the newest save.

        Return None if any rank has no usable segment, so that a full save is needed. `rank_plan`: this
        rank's plan of a full save; None if there is none. If an unexpected error occurs on one rank, all
        ranks raise an error.
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
                journal.end("a rank could not close its segment")
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
        """Check the steps that the journal has recorded since the previous save. Then start a chain at this
        full save.
        """
        if self._journal is None:
            return
        self._report_inexact(self._journal.check())
        self._journal.on_full_save(generation)

    def open_next(self, step: int, full: int) -> None:
        """Open a segment for the steps after `step`, which was just saved, if a segment makes the next save
        smaller.

        `full`: bytes of a full save.
        """
        self._gap, self._saved = step - self._saved if self._saved else 0, step
        journal = self._journal
        if journal is None or not self._gap or not journal.is_worthwhile(self._gap, full):
            return
        size = journal.segment_capacity(self._gap)
        fitting = self._buffers.segments(size)
        name = next((one for one in self._status.segments if one in fitting), "")
        if name:
            journal.open(name, self._buffers.bytes(name), self._gap)
        elif not fitting and time.monotonic() - self._refused_at >= RETRY_SECONDS:
            self._refused_at = time.monotonic()
            self._buffers.reserve_segments(journal.buffer_count(self._gap, full), size)

    def _report_inexact(self, found: str) -> None:
        if found:
            log_line(
                f"JOURNAL INEXACT: replaying its gradients does not reproduce {found}; "
                "the next checkpoints are full saves"
            )
            self._worker.submit(self._send_inexact, found)

    def _send_inexact(self, what: str) -> None:
        self._client.request({"type": "inexact", "what": what[:512]}, SEAL_SECONDS)
