"""A hub with one store and the jobs that use it, for tests."""

from __future__ import annotations

import base64
from typing import Any

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import Assign, MemoryTiers, StoreUse
from convoy_controllers.keys import Key
from convoy_controllers.resources import CHECKPOINT_STORES, SECRETS
from convoy_controllers.testing.builders import make_job, make_store
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.assembly import assemble
from convoy_operator.hub.context import HubContext
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

from .conftest import FakeApi

KEYS = {"accessKey": "AKIA-VISIBLE-1", "secretKey": "s3cr3t-VISIBLE-2"}
HOURLY = 3600.0


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}


class Queue:
    def __init__(self) -> None:
        self.added: list[Key] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append(key)

    def drain(self) -> list[Key]:
        drained, self.added = self.added, []
        return [key for key in drained if key.kind == CHECKPOINT_STORE.name]


class Harness:
    """A hub with the store `s3`, its Secret, and jobs that use the store."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.now = 1000.0
        self.cache = ClusterCache()
        self.queue = Queue()
        self.hub = assemble(
            HubContext(
                cache=self.cache,
                queue=self.queue,  # type: ignore[arg-type]
                gateway=api,
                metrics=Metrics(),
                settings=Settings(),
                clock=lambda: self.now,
                wall=lambda: self.now,
            ),
            progress_delay=lambda key: 10.0,
        )
        self.streams: dict[str, Any] = {}
        self.keys(**KEYS)
        self.put()

    @property
    def stores(self) -> Any:
        return self.hub.stores

    def keys(self, **data: str) -> None:
        self.api.put(SECRETS, {"metadata": {"name": "keys"}, **secret(**data)}, "convoy-system")

    def put(self, *allowed: str, **s3: Any) -> None:
        body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
        self._put({"s3": body, "allowedNamespaces": list(allowed or ("*",))})

    def put_volume(self, **volume: Any) -> None:
        """Replace the store's bucket by a volume."""
        self._put({"volume": {"claimName": "disk", **volume}, "allowedNamespaces": ["*"]})

    def _put(self, spec: dict[str, Any]) -> None:
        old = self.cache.objects(CHECKPOINT_STORE).get("", "s3")
        metadata = {"name": "s3", "uid": old.uid if old else "uid-s3"}
        raw = self.api.put(CHECKPOINT_STORES, {"metadata": metadata, "spec": spec})
        self.cache.objects(CHECKPOINT_STORE).upsert(views.cached_object(raw))

    def job(self, node: str, name: str = "job", store: str = "s3", owner: str = "") -> None:
        tiers = {"local": {}, "remote": {"store": store}}
        raw = make_job(name, checkpoint={"tiers": tiers}).to_dict()
        raw["metadata"]["resourceVersion"] = "1"
        self.cache.jobs.upsert(views.cached_object(raw))
        metadata = {
            "name": f"{name}-{node}",
            "namespace": "default",
            "uid": f"{name}-{node}",
            "resourceVersion": "1",
            "labels": {"convoy.dev/job": name},
            "ownerReferences": [{"uid": owner or f"uid-{name}", "controller": True}],
        }
        self.cache.pods.upsert(views.pod({"metadata": metadata, "spec": {"nodeName": node}}))

    def dial(self, node: str) -> list[wire.Store]:
        """Connect an agent. Return the stores that the hub sends at once."""
        self.streams[node] = self.hub.streams.join(wire.Hello(node=node, peer_address=f"{node}:1"))
        return self.sent(node)

    def sent(self, node: str) -> list[wire.Store]:
        """Return the stores that were sent to a node's agent since the last call."""
        return [one.store for one in self.messages(node) if one.HasField("store")]

    def messages(self, node: str) -> list[wire.HubMessage]:
        box = self.streams[node].outbox
        return [box.get_nowait() for _ in range(box.qsize())]

    async def resolve(self) -> None:
        found = self.cache.objects(CHECKPOINT_STORE).get("", "s3")
        assert found is not None
        await self.hub.stores.resolve(found)

    def poll(self, seconds: float = 0.0) -> dict[str, list[wire.Store]]:
        """Advance the clock and poll. Return the stores that were sent, by node."""
        self.now += seconds
        self.stores.poll()
        return {node: sent for node in self.streams if (sent := self.sent(node))}

    def report(self, node: str, store: wire.Store, **more: Any) -> None:
        sent = {"reached": True, "conditional": True, "checksums": True, "message": "works", **more}
        self.stores.report(node, wire.StoreReport(**{"name": store.name, "version": store.version, **sent}))

    def seen(self) -> Any:
        return self.hub.reader.store(make_store())


def assignment(node: str, store: str | None = "s3", incarnation: int = 1) -> Assign:
    use = StoreUse(store, 600, 2, 5) if store else None
    return Assign(
        node=node, pod_uid="u", job_uid="j", job="default/job", incarnation=incarnation, slot=0,
        rank_offset=0, processes=1, world_size=1, master_addr="a", master_port=1, hang_seconds=9,
        role="w", replica=0, command=("x",), members=(), memory=MemoryTiers(0, 0, store=use),
    )  # fmt: skip
