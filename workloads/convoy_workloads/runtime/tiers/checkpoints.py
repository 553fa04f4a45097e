"""Checkpoints in the memory of nodes. Each rank copies its part of the state into a buffer; agents commit,
copy and upload the buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
    """The checkpoints of one rank. At most one save is in flight at a time. The training waits only while
    the rank's part of the state is copied into a buffer.
    """

    def __init__(
        self,
        context: RankContext,
        group: Any = None,
        *,
        client: MemoryClient | None = None,
        status: SaveStatus | None = None,
        notices: AgentNotices | None = None,
    ) -> None:
        """Create the checkpoints without contacting the agent.

        `group`: gloo group of all ranks; None if the rank is alone. `client` and `status` replace the
        connections to the agent's socket. `notices`: the messages that the agent sends on the rank's link.
        """
        self.incarnation = context.incarnation
        notices = notices or AgentNotices()
        self._rank = context.rank
        self._world = context.world
        self._seconds = context.checkpoint_seconds
        self._remote = "remote" in context.tiers
        self._with_journal = context.journal
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
        self._restoring = RestoreSession(client, context.rank, group, by_default=context.by_default)
        self._journal_saves = JournalSaves(
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
        """Saves of programs that plan their saves themselves."""

    # Methods that decide when to save.

    @property
    def usable(self) -> bool:
        """Always True: a program that cannot save gets an error that says why."""
        return True

    @property
    def final_save_differs(self) -> bool:
        """True if the job has a store. The agents always upload the final state to the store, but only some
        of the other states.
        """
        return self._remote

    @property
    def in_store(self) -> bool | None:
        """True if the job's final state is in its store; None if the job has no store."""
        return self._save.in_store if self._remote else None

    @property
    def interval(self) -> float:
        """Seconds between two saves, as the agent last reported. Before the first report, the value from
        the environment variables of this process applies.
        """
        return self._status.interval or self._seconds

    @property
    def stall_seconds(self) -> float:
        """Seconds for which the newest full save stopped the training; 0 before the first full save.
        Preparations that are needed only once, such as the allocation of memory, are excluded.
        """
        return self._save.stall_seconds

    @property
    def copy_seconds(self) -> float:
        """Duration, in seconds, of the newest save that was copied to other nodes: from its start until all
        its copies were complete. 0 if no save has been copied.

        If the job makes no copies, the duration of a save ends when the save is committed.
        """
        return self._status.seconds_to(PEER if self._buffers.copies else LOCAL)

    def due(self) -> bool:
        """Return True if this rank requests a save. Only rank 0 does, for all ranks, once `interval` has
        passed since the last save.
        """
        return self._rank == 0 and time.monotonic() - self._save.written_at >= self.interval

    def busy(self) -> bool:
        """Return True if this rank cannot start a save, for one of these reasons:

        - The report of its last save to the agent is not finished.
        - Its last save is still being copied to other nodes, so that no buffer is free.
        - The node has no memory for a buffer of the needed size.

        A rank with an open journal segment needs no buffer for a full save.
        """
        if not self._buffers.may_save:
            # Return False, so that the program's save starts. If the program has not restored before, `_copy`
            # then raises an error that explains this.
            return False
        if self._buffers.drop_released():
            self._journal_saves.end("the job's memory on this node went to another job")
        if self._worker.working:
            return True
        if self._journal_saves.writing:
            return False
        if self._buffers.free and not self._buffers.too_small:
            return False
        self._buffers.retry_reserve()
        late = time.monotonic() - self._save.written_at - max(self.interval, 30.0)
        if self.due() and late > 0:
            failure = self._worker.failure
            self._worker.warn(failure or "the last checkpoint is still being copied to other nodes")
        return True

    # Methods that save.

    def ready(self, model: Any, optimizer: Any) -> None:
        """Create the journal if the job wants one, and reserve buffers for the first save in the background.
        All ranks call this once the state to resume from is loaded.
        """
        from convoy_workloads.runtime.tiers.sizes import estimate_shard_bytes  # noqa: PLC0415

        if self._with_journal:
            self._journal_saves.start(model, optimizer)
        self._buffers.start(estimate_shard_bytes(model, optimizer, self._world))

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Save this rank's part of the state: close the open journal segment, or copy the state into a
        buffer. Return True if a save was started.

        All ranks call this at the same step, while no rank is `busy`. Return False if any rank has no
        buffer that is large enough; larger buffers are then reserved.

        Raises UnsavableError if a value cannot be encoded exactly; the message names the value. In that
        case all other ranks raise OtherRankFailed, and nothing is saved. If a rank fails later, while it
        writes, only that rank raises the error. The agents report to all other ranks that the step is
        abandoned.
        """
        written = self._journal_saves.extend(state, step, self._rank_plan)
        if written is None:
            try:
                written = self._copy(state, step, wait=0.0)
            except BaseException:
                self._journal_saves.end("the save that the journal would follow has failed")
                raise
            if written is None:
                return False
            self._journal_saves.on_full_save(written.generation)
        self._save.seal(written)
        assert self._rank_plan is not None  # noqa: S101 - something is written
        self._journal_saves.open_next(step, self._rank_plan.layout.size)
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = DECISION_SECONDS, *, end: bool = False
    ) -> Generation | None:
        """Do the first half of this process's last save: the half that needs the process group. Return None
        if the state cannot be saved.

        `end`: True if the job ends with this state. The agents then also upload the state to the job's
        store, if there is one.
        """
        self._save.is_last = end
        generation = Generation(self.incarnation, step)
        if self._save.newest == generation:
            return generation
        if self._save.abandoned(generation):
            # Every other rank has already saved this step, so it returned above and runs no collective. A
            # collective here would wait for those ranks.
            return None
        began = time.monotonic()
        self._journal_saves.end("the last save is a full one")
        self._worker.join(timeout)
        written = self._copy(state, step, wait=max(0.0, timeout - (time.monotonic() - began)))
        if written is None:
            return None
        self._save.seal(written)
        return generation

    def finish_last(self, staged: Generation | None, timeout: float = DECISION_SECONDS) -> bool:
        """Do the second half of this process's last save, and wait until the agents commit the save. Return
        True if the state of the last step is committed.
        """
        if staged is None:
            failure = self._worker.failure or "no buffer was free, or an earlier save of this step failed"
            log_line(f"RANK {self._rank} COULD NOT SAVE THE LAST STEP: {failure}")
            return False
        return self.settle(timeout)

    def settle(self, timeout: float = DECISION_SECONDS) -> bool:
        """Wait until the newest save is committed, and copied to other nodes if the job makes copies. Wait
        at most `timeout` seconds.

        Return True if the save is committed, or if no save was started.
        """
        return self._save.settle(timeout)

    def _copy(self, state: dict[str, Any], step: int, wait: float) -> Written | None:
        """Copy this rank's part of the state into a buffer. Return None if any rank has no free buffer
        after `wait` seconds.

        Raises DataError if the program has not called `restore`, because the agent then does not know which
        state this run started from.
        """
        if not self._buffers.may_save:
            raise DataError("call job.restore(model=...) before the first checkpoint")
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
        """Wait up to `wait` seconds for a buffer of at least `size` bytes that this rank may write to.
        Return its name, or None if there is none.
        """
        if self._buffers.capacity < size:
            self._buffers.reserve(size)
            self._worker.join(wait)
        if wait and not self._status.buffer:
            self._buffers.wait_free(wait)
        buffer = self._buffers.free
        return buffer if buffer and len(self._buffers.bytes(buffer)) >= size else None

    # Methods that restore.

    @property
    def journal(self) -> RestoreSession | None:
        """The journal of the chosen generation: the steps after its full save. None if the generation is a
        full save.
        """
        return self._restoring if self._restoring.journalled else None

    def choose(
        self, model: Any = None, optimizer: Any = None, prepare: Callable[[], None] | None = None
    ) -> Record | None:
        """Choose the generation that all ranks resume from, and fetch every shard of it. Return None if the
        job starts at step 0.

        `model` and `optimizer`: the objects that would replay a journal. `prepare`: see `Checkpointer`.

        Raises PeerLost if the agents do not agree in time, and StoreAway if the store does not respond.
        """
        return self._restoring.choose(model, optimizer, prepare)

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Read the full save of the chosen generation into `state`."""
        self._restoring.load(state)
