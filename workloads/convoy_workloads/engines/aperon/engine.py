"""The engine that serves an index of vectors. The front is `convoy_workloads.serving`; this module is the
iteration: the searches that wait run together. A thread of its own writes, and another keeps the index in
order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from starlette.routing import BaseRoute

from convoy_workloads.engines.aperon import infer, opening, read_only, self_test
from convoy_workloads.engines.aperon.admin_routes import IndexRoutes
from convoy_workloads.engines.aperon.api import VectorRoutes
from convoy_workloads.engines.aperon.batch import Batch, refusal
from convoy_workloads.engines.aperon.commands import Answer, Command
from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.opening import Opened
from convoy_workloads.engines.aperon.own_metrics import OwnMetrics
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.parts import Parts
from convoy_workloads.engines.aperon.remote import RemoteShard, follow
from convoy_workloads.engines.aperon.replica_start import open_replica
from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon.shard import Facts, Shard
from convoy_workloads.engines.aperon.upkeep_thread import UpkeepThread
from convoy_workloads.engines.aperon.writes import Writes
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.extensions import Caller
from convoy_workloads.serving.front import Front, Limits
from convoy_workloads.serving.group import Group, form
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import Inference, ModelCard, Prediction, Usage
from convoy_workloads.serving.rank import run

MAX_GROUP = 16
"""Maximum number of pods of a replica."""
FACTS_SECONDS = 1.0
"""Seconds between two readings of the facts about the shards."""


class VectorEngine:
    """The engine of one rank. Rank 0 of a replica serves; the other ranks hold further shards."""

    def __init__(self, params: Params, path: Path | None, group: Group | None = None) -> None:
        """`path`: folder of a snapshot; None if there is none."""
        self.params = params
        self._path = path
        self._group = group or Group()
        self._replication = None if params.read_only else Replication(params, os.environ)
        self._metrics = OwnMetrics(self.latest_facts, self._replication)
        self._batch = Batch(params.batch_rows)
        self._inferences: dict[int, Inference] = {}
        self._refused: list[Prediction] = []
        self._parts: Parts | None = None
        """The open index; None before the first load."""
        self._facts: list[Facts] = []
        self._facts_at = -FACTS_SECONDS
        self._source = ""
        self._origin: Mapping[str, object] = {}
        self._routes: VectorRoutes | None = None

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Open the index. A second call keeps it, with all its writes. Raises ModelError if it cannot be
        opened, and PeerLost if the other pods of the replica are not there.
        """
        if self._parts is None:
            state = self._state_folder()
            if self._replication is None:
                opened = opening.open_index(self.params, self._path, state, self._group, renew)
                self._parts = self._made(opened, renew)
                read_only.remove_others(state)
            else:
                open_index = partial(opening.open_index, self.params, self._path, state, self._group)
                folder = state / opening.shard_name(self._group)
                self._parts = open_replica(
                    self._replication, folder, open_index, self._made, renew, grouped=self._group.world > 1
                )
            self._parts.upkeep.start()
        self._read_facts()
        index, settings = self._parts.shard.index, self.settings
        facts = {
            **self._origin,
            "records": sum(one.records for one in self._facts),
            "dimension": settings.dimension,
            "metric": settings.metric,
            "shards": self._group.world,
            "kernel": index.kernel.instruction_set,
        }
        return ModelCard(
            self.params.name, 0, self._source, facts, infer.inputs(settings), infer.outputs(settings)
        )

    def _state_folder(self) -> Path:
        """Return the folder for the files of this replica. Raises ModelError if `read_only` is set and there
        is no readable snapshot.
        """
        found = opening.state_folder(self.params, os.environ)
        return read_only.folder_for(found, self._path) if self.params.read_only else found

    def _made(self, opened: Opened, renew: Callable[[], None]) -> Parts:
        """Return the parts around an open index."""
        self._source, self._origin = opened.source, opened.facts
        form(self._group, renew)
        shard = Shard(opened.index, self.params.recall_share, self.params.recall_budget)
        others = [RemoteShard(rank) for rank in range(1, self._group.world)]
        return Parts(Ensemble(shard, others), opened.folder, self.params, self._metrics, self._replication)

    def self_test(self) -> None:
        """Compare the kernel with its twin, and searches with exact searches. Raises SelfTestFailed for a
        difference.
        """
        self_test.run(self.params.index.metric, self.params.kernel)

    def admit(self, payload: Command | Inference) -> bool:
        """Add a command to the next batch. Return False if the batch is full."""
        if not isinstance(payload, Inference):
            return self._batch.admit(payload)
        try:
            search = infer.search_of(payload, self.settings, self.params.results)
        except InvalidInput as error:
            self._refused.append(Prediction(payload.id, error=refusal(error)))
            return True
        if not self._batch.admit(search):
            return False
        self._inferences[payload.id] = payload
        return True

    def step(self) -> list[Answer | Prediction]:
        """Run the batch. Return the answers of all its commands."""
        self._check()
        found: list[Answer | Prediction] = [*self._refused]
        self._refused.clear()
        for answer in self._batch.run(self.parts.ensemble, self._metrics):
            inference = self._inferences.get(answer.sequence)
            if inference is None:
                found.append(answer)
            else:
                found.append(infer.prediction(answer, inference.outputs, self.settings))
        return found

    def cancel(self, sequence: int) -> None:
        """Remove a command from the batch."""
        self._batch.cancel(sequence)
        self._inferences.pop(sequence, None)

    def idle(self) -> None:
        """Show the other pods that this one is alive."""
        self._check()
        self.parts.ensemble.idle()

    def usage(self) -> Usage:
        """Return the use of the batch."""
        waiting = 0 if self._parts is None else self._parts.writer.pending
        return Usage(len(self._batch), waiting)

    def close(self) -> None:
        """Do what waits, make everything durable, and let the other pods end."""
        if self._parts is not None:
            self._parts.close()

    def follow(self, heartbeat: HeartbeatWriter) -> None:
        """Hold a shard for rank 0 until it ends. Raises RuntimeError if rank 0 is lost."""
        heartbeat.start()
        state = self._state_folder()
        opened = opening.open_index(self.params, self._path, state, self._group, heartbeat.touch)
        form(self._group, heartbeat.touch)
        shard = Shard(opened.index, self.params.recall_share, self.params.recall_budget)
        upkeep = UpkeepThread(shard, self.params)
        upkeep.start()

        def beat() -> None:
            if upkeep.error is not None:
                raise upkeep.error
            heartbeat.serve()

        follow(shard, beat)
        upkeep.stop()
        shard.index.close()
        heartbeat.drain()

    # The following methods add to the front.

    def routes(self, front: Front) -> Sequence[BaseRoute]:
        """Return the routes below /v1/vectors, and those for other replicas."""
        self._routes = VectorRoutes(front, self)
        peers = () if self._replication is None else self._replication.routes(front)
        return [*self._routes.all(), *peers]

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        """Set the addresses of the other replicas."""
        if self._replication is not None:
            self._replication.set_peers(own, others)

    async def serve(self) -> None:
        """Exchange writes with the other replicas. The threads do the rest."""
        if self._replication is not None:
            await self._replication.run()
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Wait for the writes in flight, and until another replica has them."""
        if self._routes is not None:
            await self._routes.written.wait()
        if self._replication is not None:
            await self._replication.drain()

    def admin_routes(self, call: Caller) -> Sequence[BaseRoute]:
        """Return the routes of snapshots."""
        return IndexRoutes(self, call).all()

    def register(self, metrics: Metrics) -> None:
        """Add the metrics of the index."""
        self._metrics.register(metrics)

    @property
    def parts(self) -> Parts:
        """Return the open index with its threads."""
        assert self._parts is not None  # noqa: S101 - the front loads first
        return self._parts

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of the index."""
        return self.parts.shard.index.settings

    @property
    def writes(self) -> Writes:
        """Return the way of writes."""
        return self.parts.writes

    def latest_facts(self) -> Sequence[Facts]:
        """Return the latest facts about the shards, those of this rank as they are now. Any thread may call
        this.
        """
        if self._parts is None:
            return []
        return [self._parts.shard.facts(), *self._facts[1:]]

    def _read_facts(self) -> None:
        self._facts_at = time.monotonic()
        self._facts = self.parts.ensemble.facts()

    def _check(self) -> None:
        """Raise the error that has ended a thread of the engine. Read the facts if they are old."""
        for error in (self.parts.writer.error, self.parts.upkeep.error):
            if error is not None:
                raise RuntimeError(f"the index failed: {error}") from error
        if self._group.world > 1 and time.monotonic() - self._facts_at >= FACTS_SECONDS:
            self._read_facts()


def make(params: Params, path: Path | None, group: Group) -> VectorEngine:
    """Return the engine of a rank."""
    return VectorEngine(params, path, group)


def limits(params: Params) -> Limits:
    """Return the limits of the front."""
    return Limits(params.queue, params.max_body_bytes, params.request_seconds)


def main() -> None:
    """Run one rank of a replica."""
    run("aperon", Params, make, limits, MAX_GROUP)


if __name__ == "__main__":
    main()
