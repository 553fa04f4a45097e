"""The newest save of a rank, from its copy in a buffer until it stands."""

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
SEAL_AGAIN_SECONDS = 3600.0
"""For an agent to come back that was away when a buffer was written."""
END_SECONDS = 1800.0
"""For the state that the job ends with to get to its store."""
MAX_ABANDONED = 64
"""Generations that are remembered as abandoned."""


@dataclass(frozen=True)
class Written:
    """A save that lies in a buffer."""

    generation: Generation
    buffer: str
    length: int
    """In bytes."""
    plan: str
    """Digest of who writes what; shards of two plans make no generation."""
    extends: Generation | None = None
    """Of a journal's segment: the save that it follows."""


class InFlightSave:
    """Of one rank. A buffer is its agent's from the first byte on: `seal` follows `writing`, or `broken`."""

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
        """What was written last."""
        self.written_at = time.monotonic()
        """When that was; before the first, when this process began."""
        self.stall_seconds = 0.0
        """For which the newest full save held the training up, without what is done once and not at each; not
        the last, which may wait for a buffer."""
        self.is_last = False
        """Whether the job ends with it."""
        self.failed = False
        """Whether a save that a segment would follow has failed."""
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
        """A buffer is going to be written."""
        self._status.start_write(buffer, generation)

    def abort_write(self) -> None:
        """It was not written after all."""
        self._status.finish_write()

    @property
    def newest(self) -> Generation | None:
        """The generation that was written last."""
        return None if self.written is None else self.written.generation

    def finish_write(self, written: Written) -> None:
        """It is written; the training may go on."""
        self.written = written
        self.written_at = time.monotonic()

    def seal(self, written: Written) -> None:
        """Tells the agent, beside the training, what lies in a buffer: from here on it is the agents' to do."""
        self._worker.submit(self._seal, written)

    def abandon(self, generation: Generation) -> None:
        """Tells the agent, beside the training, that this rank could not save what others may have saved, or
        they would keep a buffer each for it until their agents give up.
        """
        self.failed = True
        if generation not in self._abandoned:
            self._abandoned.append(generation)
        self._worker.submit(self._abandon, generation)

    def abandoned(self, generation: Generation) -> bool:
        """Whether this rank could not save it, or its agent has given it up because another could not: no
        agent takes it again.
        """
        given_up = generation == self.newest and self._status.abandoned(generation)
        return given_up or generation in self._abandoned

    def settle(self, timeout: float) -> bool:
        """Waits until the newest stands, on other nodes too where copies are made. Whether it is committed,
        or there is none.
        """
        deadline = time.monotonic() + timeout
        self._worker.join(timeout)
        newest = self.newest
        if newest is None:
            return True
        stands = self._status.wait_reached(newest, LOCAL, max(0.0, deadline - time.monotonic()))
        if not stands:
            log_line(f"checkpoint {newest.name} is not committed: the job would continue from an older one")
        elif self._buffers.copies:
            copied = self._status.wait_reached(newest, PEER, max(0.0, deadline - time.monotonic()))
            if not copied and self._rank == 0:
                log_line(f"checkpoint {newest.name} is on one node each: copies are not complete")
        if stands and self.is_last and self._remote:
            self._in_store(newest)
        return stands

    def _in_store(self, generation: Generation) -> None:
        """Waits until what the job ends with is in its store; says so when it is not."""
        brought = self._status.uploads(generation) and self._status.wait_reached(
            generation, REMOTE, END_SECONDS
        )
        if not brought and self._rank == 0:
            log_line(f"checkpoint {generation.name} IS NOT IN THE STORE: it goes with the job's memory")

    def _abandon(self, generation: Generation) -> None:
        self._client.request({"type": "abandon", "step": generation.step}, SEAL_SECONDS)

    def _seal(self, written: Written) -> None:
        import torch  # noqa: PLC0415

        follows, self.failed = written.extends, True  # unless the agent says otherwise
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
        deadline = time.monotonic() + SEAL_AGAIN_SECONDS
        # Until it is known what became of the buffer it cannot be written: the agent may be looking at it.
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
