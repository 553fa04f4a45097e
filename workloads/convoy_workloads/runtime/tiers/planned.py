"""Saves whose plan comes from the program: the program, through torch.distributed.checkpoint, decides which
rank writes which values (runtime/adapters/dcp.py). Nothing here uses the process group of the ranks.
"""

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
"""Value of `Written.plan` for all saves that the program planned. It replaces the digest, because the ranks
have no common plan to compute a digest of.
"""


class PlannedSaves:
    """The saves of one rank whose plans come from the program."""

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
        """Layout of the newest save; None before the first save."""

    @property
    def may_save(self) -> bool:
        """True once the ranks have agreed on the state to resume from. Before that, this rank must not
        save.
        """
        return self._buffers.may_save

    @property
    def shards(self) -> list[Any]:
        """The shards of the generation to resume from; empty after `done_reading`."""
        return self._restoring.shards

    def done_reading(self) -> None:
        """Release the shards and allow saves. Later calls do nothing. Raises PeerLost if the agent does not
        respond.
        """
        if self.may_save:
            return
        size = sum(len(one.bytes) for one in self.shards) // self._world
        if self.shards:
            self._restoring.done()
        self._buffers.start(size + SPARE)

    def ensure_capacity(self, size: int) -> str:
        """Make every buffer for full saves at least `size` bytes large. Return an empty text on success,
        otherwise the reason why this is not possible.
        """
        self._worker.join(SEAL_SECONDS)
        if self._worker.working:
            return "the previous save is not sealed yet"
        if self._buffers.capacity < size:
            self._buffers.reserve(size)
            self._worker.join(SEAL_SECONDS)
        return "" if self._buffers.capacity >= size else self._worker.failure or "the agent does not respond"

    def wait_free(self, seconds: float) -> bool:
        """Wait up to `seconds` for a buffer for full saves that this rank may write to. Return True if
        there is one.

        Raises PeerLost if a later incarnation of the job exists.
        """
        if self._notices.stale:
            raise PeerLost("a later incarnation of this job exists")
        return self._buffers.wait_free(seconds)

    def check(self, step: int) -> None:
        """Raise an error if `step` cannot be saved.

        The error is ValueError if `step` is not beyond the last saved step, and StepAbandoned if a rank has
        failed to save `step`.
        """
        save, generation = self._save, Generation(self._save.incarnation, step)
        if save.abandoned(generation):
            raise StepAbandoned(
                f"step {step} was given up, because a rank could not save it: until the job restarts, "
                "only a later step can be saved"
            )
        if save.newest is not None and generation <= save.newest:
            raise ValueError(f"step {step} is not beyond step {save.newest.step}, which is saved already")

    def abandon(self, step: int) -> None:
        """Abandon the save of `step` on all ranks, because this rank failed to save it. Do nothing if `put`
        has already written this step, or a later one.
        """
        generation = Generation(self._save.incarnation, step)
        if self._save.newest is None or generation > self._save.newest:
            self._save.abandon(generation)

    def put(self, items: Any, tensors: Any, texts: dict[str, str], step: int, *, last: bool = False) -> str:
        """Copy the tensors of `items`, and the `texts` by name, into a buffer, as this rank's shard of the
        state after `step`. Seal the buffer in the background.

        Return an empty text on success, otherwise the reason why nothing was copied. Raises the errors of
        `check`. `last`: True if the job ends with this state.
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
