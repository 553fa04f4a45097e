"""Downloads a generation from a store to this node's disk, and checks every byte.

The files have the layout of `convoy checkpoint restore`: `record.json`, and for each shard the file
`shards/<shard>/gen-<incarnation>-<step>`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from convoy_agents.models.folders import RECORD, SHARDS, ModelFolders
from convoy_agents.models.source import Failure, ModelError, ModelSource
from convoy_agents.tiercheck.stores.adopt import choose
from convoy_agents.tiercheck.stores.errors import Damaged
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import Retries, StopFlag, TransferLimits, download
from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Inventory, Manifest, Record

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LIMITS = TransferLimits(threads=4, retries=Retries(attempts=12, budget=200))
"""Limits of a download. A store may fail for about a minute before the download starts again from nothing.
Each thread holds a chunk in the agent's memory.
"""


def fetch(
    store: Store, source: ModelSource, folders: ModelFolders, stop: StopFlag, progress: Callable[[], None]
) -> None:
    """Download a generation into `folders`. `progress` is called after each chunk, from several threads.

    Raises ModelError, StoreError, Stopped or OSError.
    """
    record, manifests = select(store.inventory(), source, store.where)
    progress()
    with folders.loading(source.key, sum(one.size for one in manifests)) as folder:
        for one in manifests:
            path = folder / SHARDS / one.shard / one.generation.name
            path.parent.mkdir(parents=True)
            try:
                _fetch_shard(store, one, path, stop, progress)
            except Damaged as error:
                raise _damage(store, source, one, str(error)) from error
        (folder / RECORD).write_bytes(record.text)


def select(stored: Inventory, source: ModelSource, where: str) -> tuple[Record, list[Manifest]]:
    """Return the record of a generation, and the manifest of each shard. Pure. Raises ModelError if the store
    lacks the generation or a shard.
    """
    label = f"step {source.step}" + (f" of incarnation {source.incarnation}" if source.incarnation else "")
    record = _find(stored, source)
    if record is None:
        raise ModelError(Failure.NOT_FOUND, f"{where}: it has no complete checkpoint of {label}")
    manifests = []
    for shard, head in sorted(record.shards.items()):
        chain = restore.chain(stored.manifests, head)
        if chain is None or not _PLAIN.fullmatch(shard):
            why = "its manifest is missing or damaged" if chain is None else "its name is no valid file name"
            raise ModelError(Failure.DIGEST_MISMATCH, f"{where}: {label}, shard {shard!r}: {why}")
        if len(chain) > 1:
            why = f"shard {shard} ends in a journal, which only the TrainingJob can replay"
            raise ModelError(Failure.IN_JOURNAL, f"{where}: {label}: {why}")
        manifests += chain
    return record, manifests


def _find(stored: Inventory, source: ModelSource) -> Record | None:
    if source.incarnation:
        return stored.records.get(Generation(source.incarnation, source.step))
    chosen = choose(stored, source.step)
    return chosen.record if chosen else None


def _fetch_shard(
    store: Store, manifest: Manifest, path: Path, stop: StopFlag, progress: Callable[[], None]
) -> None:
    offsets = list(itertools.accumulate((chunk.length for chunk in manifest.chunks), initial=0))
    with path.open("xb") as file:
        # Fails at once if the disk is full.
        os.posix_fallocate(file.fileno(), 0, manifest.size)

        def write(index: int, data: bytes) -> None:
            left, at = memoryview(data), offsets[index]
            while left:
                done = os.pwrite(file.fileno(), left, at)
                left, at = left[done:], at + done
            progress()

        download(store, manifest, write, stop=stop, limits=_LIMITS)


def _damage(store: Store, source: ModelSource, manifest: Manifest, why: str) -> ModelError:
    """Return the error for a shard that is damaged. Its generation may have been removed meanwhile."""
    if _find(store.inventory(), source) is None:
        return ModelError(
            Failure.NOT_FOUND, f"{store.where}: the checkpoint of step {source.step} was removed meanwhile"
        )
    return ModelError(
        Failure.DIGEST_MISMATCH, f"{store.where}: shard {manifest.shard} of step {source.step}: {why}"
    )
