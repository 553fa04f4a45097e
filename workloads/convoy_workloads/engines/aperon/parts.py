"""An open index with its threads and the way of its writes."""

from __future__ import annotations

from pathlib import Path

from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.knowledge import Knowledge
from convoy_workloads.engines.aperon.own_metrics import OwnMetrics
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.replica_store import Index
from convoy_workloads.engines.aperon.replicated_writes import NoWrites, ReplicatedWrites
from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.engines.aperon.upkeep_thread import UpkeepThread
from convoy_workloads.engines.aperon.writer import Writer
from convoy_workloads.engines.aperon.writes import Counted, Writes, room_in


class Parts:
    """An open index with its threads."""

    def __init__(
        self,
        ensemble: Ensemble,
        folder: Path,
        params: Params,
        metrics: OwnMetrics,
        replication: Replication | None,
    ) -> None:
        """`folder`: that of the index. `replication`: None if the index accepts no writes."""
        self.ensemble, self.folder = ensemble, folder
        self.shard = ensemble.own
        self.writer = Writer(ensemble, params.write_queue, sync=params.fsync == "always")
        knowledge = Knowledge(folder, Storage(durable=params.fsync != "never"))
        self.index = Index(ensemble, self.writer, knowledge)
        self.writes: Writes = NoWrites()
        if replication is None:
            self.upkeep = UpkeepThread(self.shard, params)
        else:
            room = room_in(ensemble, params) if params.max_records or params.memory_mib else None
            self.writes = Counted(ReplicatedWrites(ensemble, self.writer, room, replication.append), metrics)
            self.upkeep = UpkeepThread(self.shard, params, replication.persist)

    def close(self) -> None:
        """Do what waits, make everything durable, and let the other pods end."""
        self.writer.close()
        self.upkeep.stop()
        self.ensemble.end()
        self.shard.index.close()
