"""A job begins with what another one has saved: its own part of the store gets a copy.

From then on the two have nothing in common: what the other job sweeps, or goes on to save, changes nothing
here. As generation 0-<step> the copy is older than anything that this job saves itself.
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
    """What was copied."""

    source: Generation
    """As the other job calls it."""
    record: Record
    sent_bytes: int


def adopt(
    source: Store, target: Store, step: int, stop: StopFlag, cap_bytes_per_second: float = 0
) -> Adopted:
    """Copies the newest generation that is whole, or that of `step`, unless 0. Again after any error: it goes
    on. StoreError, Damaged, Stopped; StoreError that is not `retriable` when there is no such generation.
    """
    chosen = choose(source.inventory(), step)
    if chosen is None:
        wanted = f"no checkpoint of step {step} is" if step else "no checkpoint is"
        raise StoreError(f"{source.where}: {wanted} whole there", retriable=False)
    manifests, record = relabelled(chosen)
    limits = TransferLimits(bytes_per_second=cap_bytes_per_second)
    sent = 0
    for own in manifests:
        if stop.is_set():
            raise Stopped

        def read(index: int, chunks: tuple[Chunk, ...] = own.chunks) -> bytes:
            return source.get_chunk(chunks[index])

        sent += upload(target, own, read, stop=stop, limits=limits).sent_bytes
    if not target.commit(record):
        raise StoreError(f"{target.where}: another {record.generation.name} stands there", retriable=False)
    return Adopted(chosen.record.generation, record, sent)


def choose(stored: Inventory, step: int) -> restore.Restore | None:
    """The newest generation that is whole, or that of `step`, unless 0; None without one. Pure."""
    known = stored
    if step:
        records = {name: one for name, one in stored.records.items() if name.step == step}
        known = replace(stored, records=records)
    found = restore.plan({restore.REMOTE: known})
    return found if isinstance(found, restore.Restore) else None


def relabelled(chosen: restore.Restore) -> tuple[list[Manifest], Record]:
    """Manifests, each behind what it extends, and record: the same bytes under this job's own names. Pure."""
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
