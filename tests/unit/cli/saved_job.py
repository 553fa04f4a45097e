"""Helpers for tests of `convoy checkpoint`: a store in this process with the checkpoints of a job, and a
fake cluster with the job and the store.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.cli.checkpoint import fsck, store_access
from convoy.client import ApiError, Forbidden
from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.s3 import S3, ClientSettings, Credentials
from convoy_agents.tiercheck.stores.s3 import Bucket as S3Bucket
from convoy_agents.tiercheck.stores.store import Store
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Manifest, Record
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.trainingjob import TrainingJob

KEYS = {"accessKey": "an-access-key", "secretKey": "a-secret-key"}
SIZE = 1000
NOW = 1_767_268_800.0
TO_STORE = {"local": {}, "remote": {"store": "s3", "keepLast": 1}}


def noise(seed: object, size: int = SIZE) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def chunk_of(data: bytes) -> Chunk:
    return Chunk(digest.digest(data), len(data))


def shard(
    at: tuple[int, int], pieces: Sequence[bytes], name: str = "0", extends: str | None = None
) -> Manifest:
    size = sum(map(len, pieces))
    return Manifest(Generation(*at), name, tuple(map(chunk_of, pieces)), size, extends=extends)


def record_of(
    manifests: Iterable[Manifest], parent: tuple[int, int] | None = None, saved: float = NOW
) -> Record:
    found = list(manifests)
    before = None if parent is None else Generation(*parent)
    return Record(
        found[0].generation,
        before,
        {one.shard: one.id for one in found},
        world=len(found),
        torch="2.13.0",
        saved=saved,
    )


def job(tiers: Mapping[str, Any] | None = None, uid: str = "uid-1", **status: Any) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job", "namespace": "team", "uid": uid},
            "spec": {
                "engine": {"name": "gpt"},
                "roles": [{"name": "w", "replicas": 1}],
                "checkpoint": {"tiers": TO_STORE if tiers is None else tiers},
            },
            "status": status,
        }
    )


@dataclass
class FakeClient:
    """A fake client. Its cluster has at most one job, and one store."""

    about: TrainingJob | None
    where: CheckpointStore
    keys: Mapping[str, str] = field(default_factory=lambda: dict(KEYS))
    namespace: str = "team"
    may_list_jobs: bool = True
    """True if the user may list the jobs of all namespaces."""
    secret_error: type[ApiError] | None = None
    """Class of the error that is raised when the user reads the Secret; None if the user may read it."""

    def __post_init__(self) -> None:
        self.training_jobs = SimpleNamespace(get=self._job, list=self._jobs)
        self.checkpoint_stores = SimpleNamespace(get=lambda _: self.where)
        self.api = SimpleNamespace(secret=self._secret)

    def _job(self, _: str) -> TrainingJob:
        assert self.about is not None
        return self.about

    def _jobs(self, everywhere: bool) -> list[TrainingJob]:
        if not self.may_list_jobs:
            raise Forbidden("no")
        assert everywhere
        return [one for one in (self.about,) if one]

    def _secret(self, namespace: str, name: str) -> dict[str, Any]:
        if self.secret_error:
            raise self.secret_error(f"secrets {name} in {namespace}: no")
        return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in self.keys.items()}}


class SavedJobStore:
    """The checkpoints of one job in a store. `run` runs a command of `convoy checkpoint`."""

    def __init__(self, blobs: Blobs, place: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """`place` is the field `s3` or `volume` of the CheckpointStore."""
        self.store = Store(blobs, "team", "uid-1")
        body = {"metadata": {"name": "s3"}, "spec": {**place, "allowedNamespaces": ["*"]}}
        self.cluster = FakeClient(job(), CheckpointStore.model_validate(body))
        for module in (store_access, fsck):
            monkeypatch.setattr(module, "connect_cluster", lambda *_: self.cluster)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["checkpoint", *words])

    def save(
        self, at: tuple[int, int], shards: Mapping[str, Sequence[bytes]], **more: Any
    ) -> dict[str, Manifest]:
        """Store a generation: its chunks, its manifests and its record."""
        extends = more.pop("extends", {})
        found = {}
        for name, pieces in shards.items():
            found[name] = self.put(shard(at, pieces, name, extends.get(name)), pieces)
        assert self.store.commit(record_of(found.values(), **more))
        return found

    def put(self, manifest: Manifest, pieces: Sequence[bytes]) -> Manifest:
        for chunk, piece in zip(manifest.chunks, pieces, strict=True):
            self.store.put_chunk(chunk, piece)
        self.store.put_manifest(manifest)
        return manifest


class Bucket(SavedJobStore):
    """The checkpoints of one job in a bucket."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prefix = f"part-{uuid4()}"
        self.blobs = S3(
            S3Bucket(BUCKET, endpoint_url=url, prefix=self.prefix, addressing="path"),
            Credentials("k", "s"),
            ClientSettings(attempts=1),
        )
        s3 = {
            "bucket": BUCKET,
            "endpoint": url,
            "prefix": self.prefix,
            "pathStyle": True,
            "credentialsSecret": "keys",
        }
        super().__init__(self.blobs, {"s3": s3}, monkeypatch)

    def key(self, folder: str, name: str, home: str = "team/uid-1") -> str:
        return f"{home}/{folder}/{name}"

    def spoil(self, folder: str, name: str, data: bytes) -> None:
        fault_proxy.spoil(f"{self.prefix}/{self.key(folder, name)}", data)

    def remove(self, folder: str, name: str) -> None:
        self.blobs.remove(self.key(folder, name))

    def age_all(self, seconds: float = 3600.0) -> None:
        for key in self.keys():
            fault_proxy.age(f"{self.prefix}/{key}", seconds)

    def keys(self) -> set[str]:
        return {key.removeprefix(f"{self.prefix}/") for key in fault_proxy.keys(f"{self.prefix}/")}
