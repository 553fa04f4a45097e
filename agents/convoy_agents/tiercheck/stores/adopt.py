"""Adoption: a job starts from another job's checkpoint. The checkpoint is copied from that job's part of
the store into this job's own part.

After the copy the two jobs share nothing, so nothing that the other job deletes or saves affects this job.
The copy is generation 0-<step>, so it is older than every generation that this job saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import StopFlag, TransferLimits, upload
from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Inventory, Manifest, Record


class Adopted(NamedTuple):
    """The result of an adoption."""

    source: Generation
    """The generation in the other job that was copied."""
    record: Record
    sent_bytes: int


def adopt(
    source: Store, target: Store, step: int, stop: StopFlag, cap_bytes_per_second: float = 0
) -> Adopted:
    """Copy a complete generation of another job: the generation of `step`, or the newest if `step` is 0.

    Raises StoreError, Damaged or Stopped. The StoreError is not `retriable` if there is no such generation.
    After any error the call can be repeated. It then skips the chunks that have been copied already.
    """
    chosen = choose(source.inventory(), step)
    if chosen is None:
        wanted = f"checkpoint of step {step}" if step else "checkpoint"
        raise StoreError(f"{source.where}: it has no complete {wanted}", retriable=False)
    manifests, record = relabel(chosen)
    limits = TransferLimits(bytes_per_second=cap_bytes_per_second)
    sent = 0
    for own in manifests:
        if stop.is_set():
            raise Stopped

        def read(index: int, chunks: tuple[Chunk, ...] = own.chunks) -> bytes:
            return source.get_chunk(chunks[index])

        sent += upload(target, own, read, stop=stop, limits=limits).sent_bytes
    if not target.commit(record):
        raise StoreError(f"{target.where}: it already has another {record.generation.name}", retriable=False)
    return Adopted(chosen.record.generation, record, sent)


def choose(stored: Inventory, step: int) -> restore.Restore | None:
    """Return the newest complete generation, or that of `step` unless `step` is 0. Return None if there is
    none. Pure.
    """
    known = stored
    if step:
        records = {name: one for name, one in stored.records.items() if name.step == step}
        known = replace(stored, records=records)
    found = restore.plan({restore.REMOTE: known})
    return found if isinstance(found, restore.Restore) else None


def relabel(chosen: restore.Restore) -> tuple[list[Manifest], Record]:
    """Return copies of the generation's manifests and record under this job's names. They refer to the same
    chunks. Pure.

    Each manifest comes after the manifest that it extends.
    """
    manifests: list[Manifest] = []
    heads: dict[str, str] = {}
    for shard, links in chosen.shards.items():
        own = list(_chain(link.manifest for link in links))
        manifests += own
        heads[shard] = own[-1].id
    old = chosen.record
    generation = Generation(0, old.generation.step)
    return manifests, Record(generation, None, heads, old.world, old.torch, old.saved, remote=True)


def _chain(manifests: Iterable[Manifest]) -> Iterable[Manifest]:
    before: str | None = None
    for one in manifests:
        own = replace(one, generation=Generation(0, one.generation.step), extends=before)
        before = own.id
        yield own
