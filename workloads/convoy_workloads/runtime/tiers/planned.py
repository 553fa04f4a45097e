"""Saves that a program plans itself (runtime/adapters/dcp.py). Nothing here uses the ranks' group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.errors import PeerLost, StepAbandoned
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.buffers import RankBuffers
from convoy_workloads.runtime.tiers.in_flight_save import SEAL_SECONDS, InFlightSave, Written
from convoy_workloads.runtime.tiers.restoring import RestoreSession
from convoy_workloads.runtime.tiers.sizes import SPARE

if TYPE_CHECKING:
    from convoy_workloads.runtime.tiers.shard import Layout

PLANNED = "by the program"
"""Stands for the plan of a generation that the program has planned, anew for each."""


class PlannedSaves:
    """Of one rank."""

    def __init__(
        self,
        context: RankContext,
        worker: BackgroundWorker,
        buffers: RankBuffers,
        save: InFlightSave,
        restoring: RestoreSession,
        notices: AgentNotices,
    ) -> None:
        self._world = context.world
        self._worker = worker
        self._buffers = buffers
        self._save = save
        self._restoring = restoring
        self._notices = notices
        self._layout: Layout | None = None
        """Of the newest save."""

    @property
    def may_save(self) -> bool:
        """Whether it is settled what this run goes on from, so that it may save."""
        return self._buffers.may_save

    @property
    def shards(self) -> list[Any]:
        """What is gone on from, until `done_reading`."""
        return self._restoring.shards

    def done_reading(self) -> None:
        """Everything that is needed of `shards` is read: this rank may save from now on. Again it does
        nothing. PeerLost.
        """
        if self.may_save:
            return
        size = sum(len(one.bytes) for one in self.shards) // self._world
        if self.shards:
            self._restoring.done()
        self._buffers.start(size + SPARE)

    def ensure_capacity(self, size: int) -> str:
        """Has the buffers hold `size` bytes at least. Why that cannot be; empty when they do."""
        self._worker.join(SEAL_SECONDS)
        if self._worker.working:
            return "the save before is not sealed yet"
        if self._buffers.room < size:
            self._buffers.want(size)
            self._worker.join(SEAL_SECONDS)
        return "" if self._buffers.room >= size else self._worker.failure or "the agent is away"

    def wait_free(self, seconds: float) -> bool:
        """Whether a buffer can be written, within so many seconds. PeerLost when a later incarnation of the job
        exists.
        """
        if self._notices.stale:
            raise PeerLost("a later incarnation of this job exists")
        return self._buffers.wait_free(seconds)

    def check(self, step: int) -> None:
        """ValueError for a step that is not beyond the last one, StepAbandoned for one that a rank could not
        save before.
        """
        save, generation = self._save, Generation(self._save.incarnation, step)
        if save.abandoned(generation):
            raise StepAbandoned(
                f"step {step} was given up, as a rank could not save it: until the job restarts only a later "
                "step can be saved"
            )
        if save.newest is not None and generation <= save.newest:
            raise ValueError(f"step {step} is not beyond step {save.newest.step}, which was saved before")

    def abandon(self, step: int) -> None:
        """This rank could not `put` what others may have put: all give it up. Nothing for a step that was
        put.
        """
        generation = Generation(self._save.incarnation, step)
        if self._save.newest is None or generation > self._save.newest:
            self._save.abandon(generation)

    def put(self, items: Any, tensors: Any, texts: dict[str, str], step: int, *, last: bool = False) -> str:
        """Copies the tensors of `items` and `texts`, by name, into a free buffer; it is sealed beside the
        training. Why that cannot be; empty when it is done. ValueError, StepAbandoned as `check`.

        `last`: the job ends with it.
        """
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        save = self._save
        self.check(step)
        generation = Generation(save.incarnation, step)
        facts = planning.facts(step, self._world)
        layout, before = planning.lay_out_items(items, texts), self._layout
        if before is not None and layout.resembles(before) and shard.fits(before, texts, facts):
            layout = before
        making = time.monotonic()
        if why := self.ensure_capacity(layout.size):
            return why
        began += time.monotonic() - making
        buffer = self._buffers.free
        if not buffer:
            return "no buffer is free"
        save.start_write(buffer, generation)
        try:
            shard.write(self._buffers.bytes(buffer), layout, tensors, texts, facts)
        except BaseException:
            save.abort_write()
            raise
        self._layout, save.is_last = layout, last
        written = Written(generation, buffer, layout.size, PLANNED)
        save.finish_write(written)
        save.stall_seconds = save.written_at - began
        save.seal(written)
        return ""
