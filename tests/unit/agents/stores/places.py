"""Backends of both kinds for tests of stores, and functions that write checkpoints to them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.s3 import S3, Bucket, ClientSettings, Credentials
from convoy_agents.tiercheck.stores.store import CommitRules, Store
from convoy_agents.tiercheck.stores.upload import Retries
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Manifest, Record

GRACE = 1000.0
RULES = CommitRules(grace_seconds=GRACE)
KEYS = Credentials("an-access-key", "a-secret-key", "a-session-token")
AT_ONCE = Retries(first_seconds=0.0, cap_seconds=0.0)
HOME = "team/uid-1"


@dataclass
class Place:
    """A backend for blobs, and functions that change its blobs without using its interface."""

    blobs: Blobs
    age: Callable[[str, float], None]
    """A function that sets the write time of a blob back by a number of seconds."""
    spoil: Callable[[str, bytes], None]
    keys: Callable[[], set[str]]
    reports: list[str] = field(default_factory=list)

    def store(self, **more: Any) -> Store:
        given = {name: more.pop(name) for name in ("conditional", "clock") if name in more}
        rules = CommitRules(grace_seconds=GRACE, **given)
        return Store(self.blobs, "team", "uid-1", rules=rules, report=self.reports.append, **more)

    def age_all(self, seconds: float = 2 * GRACE) -> None:
        for key in self.keys():
            self.age(key, seconds)

    def held(self, folder: str) -> set[str]:
        return {key.rpartition("/")[2] for key in self.keys() if key.startswith(f"{HOME}/{folder}/")}


def bucket(url: str, prefix: str = "", **more: Any) -> S3:
    where = Bucket(BUCKET, endpoint_url=url, prefix=prefix or f"some/where-{uuid4()}", addressing="path")
    return S3(where, KEYS, ClientSettings(**{"attempts": 1, **more}))


def s3_place(url: str) -> Place:
    prefix = f"some/where-{uuid4()}"
    return Place(
        bucket(url, prefix),
        lambda key, seconds: fault_proxy.age(f"{prefix}/{key}", seconds),
        lambda key, data: fault_proxy.spoil(f"{prefix}/{key}", data),
        lambda: {key.removeprefix(f"{prefix}/") for key in fault_proxy.keys(f"{prefix}/")},
    )


def volume_place(root: Path) -> Place:
    def age(key: str, seconds: float) -> None:
        written = (root / key).stat().st_mtime - seconds
        os.utime(root / key, (written, written))

    def spoil(key: str, data: bytes) -> None:
        (root / key).write_bytes(data)

    return Place(
        Volume(root),
        age,
        spoil,
        lambda: {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()},
    )


def noise(seed: object, size: int = 300) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def chunk_of(data: bytes) -> Chunk:
    return Chunk(digest.digest(data), len(data))


def shard(
    step: int, pieces: list[bytes], name: str = "0", extends: str | None = None, incarnation: int = 1
) -> Manifest:
    size = sum(len(piece) for piece in pieces)
    return Manifest(Generation(incarnation, step), name, tuple(map(chunk_of, pieces)), size, extends=extends)


def record_of(*manifests: Manifest, saved: float = 0.0, parent: Generation | None = None) -> Record:
    return Record(manifests[0].generation, parent, {one.shard: one.id for one in manifests}, saved=saved)


def put(store: Store, manifest: Manifest, pieces: list[bytes]) -> Manifest:
    for chunk, piece in zip(manifest.chunks, pieces, strict=True):
        store.put_chunk(chunk, piece)
    store.put_manifest(manifest)
    return manifest


def saved(store: Store, step: int, *pieces: bytes, parent: int | None = None, **more: Any) -> Record:
    manifest = put(store, shard(step, list(pieces), **more), list(pieces))
    before = None if parent is None else Generation(1, parent)
    record = record_of(manifest, parent=before)
    assert store.commit(record)
    return record
