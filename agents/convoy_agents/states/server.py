"""The server for the memory requests of replicas. It handles those of each connection one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from convoy_agents import metrics
from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.fields import MessageError
from convoy_agents.pods.state import PodState
from convoy_agents.states.copying import StateCopies
from convoy_agents.states.restoring import StateRestores
from convoy_agents.states.retained import SHARD, newest
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import Shortage
from convoy_agents.tiercheck.rank_connection import RankConnection, handle_frames
from convoy_agents.tiercheck.rank_requests import Poll, RankRequest, Reserve, Restore, Restored, Seal, parse
from convoy_agents.tiercheck.rank_server import BUFFERS, READING, SAVING, shortage_frame, with_wait_frames
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_sealer import WrittenBuffer
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint.generation import Generation

RESTORE_SECONDS = 120.0
"""Maximum seconds until a state is restored. A replica that waits longer starts without it."""

Saved = Callable[[Assignment, int], None]
"""A callback for a saved or restored state. Its second argument is the time of the save in Unix
milliseconds.
"""

log = structlog.get_logger()


class StateServer:
    """The server for the replicas whose slot 0 is on this node."""

    def __init__(
        self,
        memory_manager: MemoryManager,
        restores: StateRestores,
        copies: StateCopies,
        troubles: TroubleReporter,
        saved: Saved,
    ) -> None:
        self._memory_manager = memory_manager
        self._restores = restores
        self._copies = copies
        self._troubles = troubles
        self._saved = saved

    async def serve(self, pod: Callable[[], PodState], connection: RankConnection) -> None:
        """Serve a replica until it disconnects, its incarnation ends, or it may save no state any more.
        Raises MessageError for an invalid request.
        """

        def current() -> Assignment | None:
            assignment = pod().assignment
            return assignment.of_state() if assignment else None

        await handle_frames(connection, current, self._handle_frame)

    async def _handle_frame(
        self, plan: Assignment, connection: RankConnection, frame: dict[str, Any]
    ) -> None:
        request = parse(frame)
        try:
            await self._handle(plan, connection, request)
        except (ConnectionError, TimeoutError, MessageError):
            raise
        except Shortage as error:
            answer = shortage_frame(error)
            what = READING if isinstance(request, Restore) else SAVING
            self._troubles.memory_refused(plan, connection.rank, what, answer["why"])
            await connection.send(answer)
        except (OSError, ValueError) as error:
            log.error("a replica's request failed", job=plan.job, kind=frame["type"], why=str(error))
            await connection.send({"type": "failed", "why": str(error)})

    async def _handle(self, plan: Assignment, connection: RankConnection, request: RankRequest) -> None:
        match request:
            case Reserve():
                await self._reserve(plan, connection, request.size)
            case Poll():
                await self._poll(plan, connection)
            case Seal():
                await with_wait_frames(connection, self._seal(plan, connection, request))
            case Restore():
                await self._restore(plan, connection)
            case Restored():
                self._copies.start(plan.pod_uid)
                await connection.send({"type": "done"})
            case _:
                raise MessageError("type: a replica sends reserve, poll, seal, restore and restored only")

    async def _reserve(self, plan: Assignment, connection: RankConnection, size: int) -> None:
        memory = await self._open(plan)
        work = memory.reserve(SHARD, BUFFERS, size, [SHARD], plan.memory_limit)
        paths = await with_wait_frames(connection, work)
        self._troubles.memory_granted(plan, connection.rank, SAVING)
        names = [path.name for path in paths]
        await connection.send({"type": "buffers", "names": names}, paths, write=True)

    async def _poll(self, plan: Assignment, connection: RankConnection) -> None:
        memory = await self._open(plan)
        free, last = await memory.inspect(lambda store: (store.writable(SHARD), newest(store)))
        # A clock that was set back must not make the next state look older than this one.
        saved_ms = last.generation.step if last else 0
        await connection.send({"type": "status", "buffer": free[0] if free else "", "savedMs": saved_ms})

    async def _seal(self, plan: Assignment, connection: RankConnection, seal: Seal) -> None:
        memory = await self._open(plan)
        generation = Generation(plan.incarnation, seal.step)

        def sealed(store: ShardStore) -> bool:
            """Return True if the rank did not get the reply and repeats its request."""
            return generation in store.sealed_generations([SHARD], plan.incarnation)

        if not await memory.inspect(sealed):
            written = WrittenBuffer(seal.buffer, SHARD, seal.length, ShardMetadata(1, "", ""))
            await memory.sealer.seal(written, generation)
            self._saved(plan, seal.step)
        self._copies.start(plan.pod_uid)
        await connection.send({"type": "sealed"})

    async def _restore(self, plan: Assignment, connection: RankConnection) -> None:
        await self._open(plan)

        async def bounded() -> Any:
            async with asyncio.timeout(RESTORE_SECONDS):
                return await self._restores.restore(plan)

        try:
            found = await with_wait_frames(connection, bounded())
        except TimeoutError:
            why = f"the state was not restored within {RESTORE_SECONDS:.0f} s"
            metrics.RESTORES.labels("failed").inc()
            await connection.send({"type": "failed", "why": why})
            return
        self._troubles.memory_granted(plan, connection.rank, READING)
        metrics.RESTORES.labels("found" if found else "fresh").inc()
        if found is None:
            await connection.send({"type": "restore", "found": False})
            return
        manifest = found.candidate.manifest
        self._saved(plan, manifest.generation.step)
        answer = {"type": "restore", "found": True, "replica": found.replica}
        facts = {"savedMs": manifest.generation.step, "length": manifest.length}
        await connection.send({**answer, **facts}, [found.path])

    async def _open(self, plan: Assignment) -> JobMemory:
        """Return the replica's memory, in which the incarnation of `plan` has started. Raises ValueError if a
        later one has.
        """
        memory = self._memory_manager.open(plan.job_uid)
        started = await memory.inspect(lambda store: max(store.incarnation, memory.seen))
        if started > plan.incarnation:
            raise ValueError("a later incarnation of this replica has started")
        if await memory.inspect(lambda store: store.incarnation) < plan.incarnation:
            await memory.use(lambda store: store.start_incarnation(plan.incarnation, {}))
            memory.seen = plan.incarnation
        await self._memory_manager.set_slot_token(memory, plan.slot_token)
        return memory
