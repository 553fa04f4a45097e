"""Checkpoints in the memory of nodes: ranks copy their shares into buffers, the agents do the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.runtime.checkpointer import DECISION_SECONDS
from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.buffers import RankBuffers
from convoy_workloads.runtime.tiers.in_flight_save import InFlightSave, Written
from convoy_workloads.runtime.tiers.journal_saves import JournalSaves
from convoy_workloads.runtime.tiers.memory_client import MemoryClient
from convoy_workloads.runtime.tiers.planned import PlannedSaves
from convoy_workloads.runtime.tiers.rank_collectives import RankGroup, all_true, value_if_all
from convoy_workloads.runtime.tiers.restoring import RestoreSession
from convoy_workloads.runtime.tiers.save_status import LOCAL, PEER, SaveStatus

if TYPE_CHECKING:
    from convoy_workloads.runtime.tiers.planning import RankPlan, StateSnapshot


class MemoryCheckpoints:
    """Of one rank. One save at a time; the training waits for the copy alone."""

    def __init__(
        self,
        context: RankContext,
        group: Any = None,
        *,
        client: MemoryClient | None = None,
        status: SaveStatus | None = None,
        notices: AgentNotices | None = None,
    ) -> None:
        """`group`: gloo, all ranks; None when alone. `line`, `watch`: others than to the place's socket.
        `told`: what the agent says on the rank's link.
        """
        self.incarnation = context.incarnation
        notices = notices or AgentNotices()
        self._rank = context.rank
        self._world = context.world
        self._seconds = context.checkpoint_seconds
        self._remote = "remote" in context.tiers
        self._group = group
        hello: Message = {
            "type": "hello",
            "role": "memory",
            "incarnation": context.incarnation,
            "rank": context.rank,
        }
        client = client or MemoryClient(context.socket, hello)
        self._status = status or SaveStatus(MemoryClient(context.socket, hello))
        self._worker = BackgroundWorker(context.rank)
        self._buffers = RankBuffers(client, self._status, self._worker)
        self._save = InFlightSave(context, client, self._status, self._worker, self._buffers, notices)
        self._restoring = RestoreSession(client, context.rank, group)
        self._journalling = JournalSaves(
            RankGroup(context.rank, context.world, group),
            client,
            self._status,
            self._worker,
            self._buffers,
            self._save,
        )
        self._rank_plan: RankPlan | None = None
        self.planned = PlannedSaves(
            context, self._worker, self._buffers, self._save, self._restoring, notices
        )
        """For programs that plan their saves themselves."""

    # When.

    @property
    def marks_the_end(self) -> bool:
        """Whether what the job ends with is saved otherwise than the rest: for the store, in any case."""
        return self._remote

    @property
    def interval(self) -> float:
        """Seconds between two saves: as the agent last said, or else as this process was told."""
        return self._status.interval or self._seconds

    @property
    def stall_seconds(self) -> float:
        """For which the newest full save held the training up, without what is done once and not at each; 0
        before the first.
        """
        return self._save.stall_seconds

    @property
    def copy_seconds(self) -> float:
        """From the beginning of the newest save that has its copies (without any: that is committed) until it
        had; 0 before the first.
        """
        return self._status.seconds_to(PEER if self._buffers.copies else LOCAL)

    def due(self) -> bool:
        """Whether this rank wishes a save now. Rank 0 wishes for all."""
        return self._rank == 0 and time.monotonic() - self._save.written_at >= self.interval

    def busy(self) -> bool:
        """Whether this rank has nowhere to write now: its last save is still being copied to other nodes, or
        there is no memory for it.
        """
        if not self._buffers.may_save:
            return False  # whoever saves without having restored is told so
        if self._worker.working:
            return True
        if self._journalling.writing:
            return False
        if self._buffers.free and not self._buffers.short:
            return False
        self._buffers.try_again()
        late = time.monotonic() - self._save.written_at - max(self.interval, 30.0)
        if self.due() and late > 0:
            failure = self._worker.failure
            self._worker.warn(failure or "the last checkpoint is still being copied to other nodes")
        return True

    # Saving.

    def ready(self, model: Any, optimizer: Any) -> None:
        """Has memory made ready for the first save, beside the training. All ranks call it."""
        from convoy_workloads.runtime.tiers.sizes import estimate_shard_bytes  # noqa: PLC0415

        self._journalling.start(model, optimizer)
        self._buffers.start(estimate_shard_bytes(model, optimizer, self._world))

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Copies the rank's share, or closes its journal's segment; all ranks call it at the same step, while
        none is `busy`. False: not saved now, the memory has to be made larger first.

        UnsavableError names a value that has no exact form, and then OtherRankFailed says so on all other
        ranks: nothing is saved. A rank that fails later, while it writes, raises alone; the others hear from
        their agents that the step is given up.
        """
        written = self._journalling.extend(state, step, self._rank_plan)
        if written is None:
            try:
                written = self._copy(state, step, wait=0.0)
            except BaseException:
                self._journalling.end("the save that it would follow has failed")
                raise
            if written is None:
                return False
            self._journalling.on_full_save(written.generation)
        self._save.seal(written)
        assert self._rank_plan is not None  # noqa: S101 - something is written
        self._journalling.open_next(step, self._rank_plan.layout.size)
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = DECISION_SECONDS, *, end: bool = False
    ) -> Generation | None:
        """The half of the last save that needs the process group. None: there is nowhere to write it.

        `end`: the job ends with it. Then it goes to the store, where there is one.
        """
        self._save.is_last = end
        generation = Generation(self.incarnation, step)
        if self._save.newest == generation:
            return generation
        if self._save.abandoned(generation):
            return None  # the other ranks have saved it, and do not try again
        began = time.monotonic()
        self._journalling.end("the last save is a full one")
        self._worker.join(timeout)
        written = self._copy(state, step, wait=max(0.0, timeout - (time.monotonic() - began)))
        if written is None:
            return None
        self._save.seal(written)
        return generation

    def finish_last(self, staged: Generation | None, timeout: float = DECISION_SECONDS) -> bool:
        """The other half, and the decision. Whether the last step is committed."""
        if staged is None:
            failure = self._worker.failure or "no buffer was free, or its save has failed before"
            log_line(f"RANK {self._rank} COULD NOT SAVE THE LAST STEP: {failure}")
            return False
        return self.settle(timeout)

    def settle(self, timeout: float = DECISION_SECONDS) -> bool:
        """Waits until the save in flight stands, on other nodes too where copies are made. Whether it is
        committed, or there is none.
        """
        return self._save.settle(timeout)

    def _copy(self, state: dict[str, Any], step: int, wait: float) -> Written | None:
        """Copies the share into a buffer. None when any rank has nowhere to write.

        DataError when the program has restored nothing: its agent does not know where this run begins.
        """
        if not self._buffers.may_save:
            raise DataError("job.restore(model=...) comes before the first checkpoint")
        from convoy_workloads.runtime.tiers import planning, shard  # noqa: PLC0415

        began = time.monotonic()
        facts = planning.facts(step, self._world)
        snapshot: StateSnapshot | None = None

        def fits() -> bool:
            nonlocal snapshot
            snapshot = planning.StateSnapshot(state)
            return snapshot.fits(self._rank_plan, facts)

        same, rank_plan = all_true(fits, self._group), self._rank_plan
        assert snapshot is not None  # noqa: S101 - or `fits` has raised
        if not same or rank_plan is None:
            dealing = time.monotonic()
            rank_plan = self._rank_plan = planning.plan_save(snapshot, self._group)
            began += time.monotonic() - dealing
        size = rank_plan.layout.size
        buffer = value_if_all(lambda: self._buffer(size, wait), self._group)
        if buffer is None:
            return None
        generation = Generation(self.incarnation, step)
        self._save.start_write(buffer, generation)
        try:
            shard.write(
                self._buffers.bytes(buffer),
                rank_plan.layout,
                snapshot.tensors(rank_plan),
                snapshot.texts(rank_plan),
                facts,
            )
        except BaseException:
            self._save.abort_write()
            self._save.abandon(generation)
            raise
        written = Written(generation, buffer, rank_plan.layout.size, rank_plan.plan)
        self._save.finish_write(written)
        if not wait:
            self._save.stall_seconds = self._save.written_at - began
        return written

    def _buffer(self, size: int, wait: float) -> str | None:
        """A buffer that may be written and holds so many bytes, within `wait` seconds; None without one."""
        if self._buffers.room < size:
            self._buffers.want(size)
            self._worker.join(wait)
        if wait and not self._status.buffer:
            self._buffers.wait_free(wait)
        buffer = self._buffers.free
        return buffer if buffer and len(self._buffers.bytes(buffer)) >= size else None

    # Restoring.

    @property
    def journal(self) -> RestoreSession | None:
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
