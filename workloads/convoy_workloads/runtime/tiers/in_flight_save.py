"""The newest save of a rank, from the write to its buffer until the save is committed and copied."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.buffers import RankBuffers
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable, MemoryClient
from convoy_workloads.runtime.tiers.save_status import LOCAL, PEER, REMOTE, SaveStatus

SEAL_SECONDS = 60.0
SEAL_RETRY_SECONDS = 3600.0
"""Maximum number of seconds for which a rank repeats the report of a written buffer while no agent
responds.
"""
END_SECONDS = 1800.0
"""Maximum number of seconds until the job's final state must be in the job's store."""
MAX_ABANDONED = 64
"""Maximum number of abandoned generations that are remembered."""


@dataclass(frozen=True)
class Written:
    """A save that is completely written to a buffer."""

    generation: Generation
    buffer: str
    length: int
    """Number of bytes that are used in the buffer."""
    plan: str
    """Digest of the plan of all ranks. Shards of different plans do not form a generation."""
    extends: Generation | None = None
    """The save that a journal segment follows; None for a full save."""


class InFlightSave:
    """The newest save of one rank.

    Call `start_write` before a buffer is written. Afterwards call `finish_write` and `seal`, or
    `abort_write` if the write failed.
    """

    def __init__(
        self,
        context: RankContext,
        client: MemoryClient,
        status: SaveStatus,
        worker: BackgroundWorker,
        buffers: RankBuffers,
        notices: AgentNotices,
    ) -> None:
        self.incarnation = context.incarnation
        self.written: Written | None = None
        """The last save that was completely written; None before the first save."""
        self.written_at = time.monotonic()
        """Monotonic time in seconds when `written` was complete. Before the first save: when this process
        started.
        """
        self.stall_seconds = 0.0
        """Seconds for which the newest full save stopped the training. Preparations that are needed only
        once are excluded.

        The job's last save does not change this value, because that save may have to wait for a buffer.
        """
        self.is_last = False
        """True if the job ends with this save."""
        self.in_store = False
        """True if the job's final state is in the job's store."""
        self.failed = False
        """True if the newest save has failed, or if this rank has not yet sealed it. No journal segment may
        follow such a save.
        """
        self._abandoned: deque[Generation] = deque(maxlen=MAX_ABANDONED)
        self._world = context.world
        self._rank = context.rank
        self._remote = "remote" in context.tiers
        self._client = client
        self._status = status
        self._worker = worker
        self._buffers = buffers
        self._notices = notices

    def start_write(self, buffer: str, generation: Generation) -> None:
        """Record that a buffer is about to be written."""
        self._status.start_write(buffer, generation)

    def abort_write(self) -> None:
        """Record that the write to the buffer has failed."""
        self._status.finish_write()

    @property
    def newest(self) -> Generation | None:
        """The generation that was written last; None before the first save."""
        return None if self.written is None else self.written.generation

    def finish_write(self, written: Written) -> None:
        """Record that this rank's part of the save is completely written to the buffer, so that the
        training may continue.
        """
        self.written = written
        self.written_at = time.monotonic()

    def seal(self, written: Written) -> None:
        """Report the content of the written buffer to the agent, in the background. The agents then commit
        and copy the save.
        """
        self._worker.submit(self._seal, written)

    def abandon(self, generation: Generation) -> None:
        """Report to the agent, in the background, that this rank could not save the generation.

        Without this report every other rank would keep a buffer for the generation until its agent abandons
        the generation.
        """
        self.failed = True
        if generation not in self._abandoned:
            self._abandoned.append(generation)
        self._worker.submit(self._abandon, generation)

    def abandoned(self, generation: Generation) -> bool:
        """Return True if this rank or its agent has abandoned the generation. After that no agent accepts
        the generation.
        """
        given_up = generation == self.newest and self._status.abandoned(generation)
        return given_up or generation in self._abandoned

    def settle(self, timeout: float) -> bool:
        """Wait until the newest save is committed, and copied to other nodes if the job makes copies.

        Return True if the save is committed, or if there is no save.
        """
        deadline = time.monotonic() + timeout
        self._worker.join(timeout)
        newest = self.newest
        if newest is None:
            return True
        stands = self._status.wait_reached(newest, LOCAL, max(0.0, deadline - time.monotonic()))
        if not stands:
            log_line(f"checkpoint {newest.name} is not committed: a restart would resume from an older one")
        elif self._buffers.copies:
            copied = self._status.wait_reached(newest, PEER, max(0.0, deadline - time.monotonic()))
            if not copied and self._rank == 0:
                log_line(
                    f"checkpoint {newest.name} is committed, but its copies on other nodes are not complete"
                )
        if stands and self.is_last and self._remote:
            self.in_store = self._wait_stored(newest)
        return stands

    def _wait_stored(self, generation: Generation) -> bool:
        """Wait until the job's final state is in the job's store. Return True if it is. Write to the log if
        the state does not arrive there in time.
        """
        brought = self._status.uploads(generation) and self._status.wait_reached(
            generation, REMOTE, END_SECONDS
        )
        if not brought and self._rank == 0:
            log_line(
                f"checkpoint {generation.name} IS NOT IN THE STORE: "
                "it is lost when the job's memory is released"
            )
        return brought

    def _abandon(self, generation: Generation) -> None:
        self._client.request({"type": "abandon", "step": generation.step}, SEAL_SECONDS)

    def _seal(self, written: Written) -> None:
        import torch  # noqa: PLC0415

        follows, self.failed = written.extends, True  # `failed` stays True until the agent reports success.
        question: Message = {
            "type": "seal",
            "buffer": written.buffer,
            "step": written.generation.step,
            "length": written.length,
            "extends": None if follows is None else [follows.incarnation, follows.step],
            "world": self._world,
            "torch": str(torch.__version__),
            "plan": written.plan,
            "last": self.is_last,
        }
        answer: Message = {}
        deadline = time.monotonic() + SEAL_RETRY_SECONDS
        # Repeat the request until the agent responds. Before that the buffer must not be written, because the
        # agent may be reading it.
        while not answer and not self._notices.stale:
            try:
                answer, _ = self._client.request(question, SEAL_SECONDS)
            except AgentUnavailable:
                if time.monotonic() > deadline:
                    raise
        self._status.finish_write()
        self.failed = not answer or answer["type"] != "sealed"
        if answer and self.failed:
            log_line(f"CHECKPOINT {written.generation.name} FAILED: {answer.get('why')}")
