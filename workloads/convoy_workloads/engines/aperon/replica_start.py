"""The start of a replica that takes writes: from its own state, from a peer, or from spec.model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.manifest import manifest_files
from convoy_workloads.engines.aperon.opening import Opened
from convoy_workloads.engines.aperon.parts import Parts
from convoy_workloads.engines.aperon.replica_store import INCOMPLETE, ReplicaStore
from convoy_workloads.engines.aperon.replication import Replication
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.serving.renewing import Renew, renewing
from convoy_workloads.serving.replication.log import OperationLog


def open_replica(
    replication: Replication,
    folder: Path,
    open_index: Callable[[Renew], Opened],
    make: Callable[[Opened, Renew], Parts],
    renew: Renew,
    *,
    grouped: bool,
) -> Parts:
    """Return the parts of a replica that has caught up with its peers. Raises ModelError if the index cannot
    be opened.

    `folder`: that of the index. `open_index` opens the index there, or makes one. `make` returns the parts
    around an index. `grouped`: the replica has several pods. Their indexes are open by then, so the whole
    state of a peer cannot replace them: this replica gets the records one by one.
    """
    if (folder / INCOMPLETE).exists():
        shutil.rmtree(folder)
    parts, log = None, OperationLog()
    if grouped or manifest_files(folder):
        parts = make(open_index(renew), renew)
        try:
            index = parts.index
            log = renewing(renew, lambda: replication.recover(index, folder))
        except (AperonError, OSError) as error:
            parts.close()
            raise ModelError(f"the index cannot be opened: {error}") from error
        if not log.vector and not grouped:
            # An empty index gives way to that of a peer.
            parts.close()
            shutil.rmtree(folder)
            parts = None
    store = ReplicaStore(folder, lambda: open_index(_nothing), durable=replication.durable)
    if parts is not None:
        store.attach(parts.index)
    replication.start(store, log, renew)
    if parts is None:
        parts = make(store.restored or open_index(renew), renew)
        fresh = parts.index
        renewing(renew, lambda: replication.attach(fresh))
    return parts


def _nothing() -> None:
    """Renew nothing: the thread that waits does it."""
