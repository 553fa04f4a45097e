"""Tests of the gateway and the reflector with a real API server: conflicts, old versions and broken
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from convoy_controllers.cached import CachedObject, Pod
from convoy_controllers.children import delete_pod
from convoy_controllers.resources import CONFIG_MAPS, PODS, TRAINING_JOBS
from convoy_operator import errors, views
from convoy_operator.cache import Store
from convoy_operator.client import KubernetesGateway
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.events import EventRecorder
from convoy_operator.executor import Executor
from convoy_operator.metrics import Metrics
from convoy_operator.reflector import Reflector, Source
from convoy_operator.settings import Settings

from .conftest import eventually
from .test_operator import job

FORGOTTEN = "1"
"""A resourceVersion that the API server no longer keeps. It is older than the CRDs, so no watch cache ever
contained it.
"""


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"convoy.dev/job": "j"}, **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
    }


async def test_a_status_write_with_an_old_version_is_a_conflict(
    gateway: KubernetesGateway, control_plane: Any
) -> None:
    namespace = control_plane.namespace()
    made = await gateway.create(TRAINING_JOBS, namespace, job("j"))
    version = made["metadata"]["resourceVersion"]
    first = await gateway.patch_status(TRAINING_JOBS, namespace, "j", version, {"incarnation": 1})
    with pytest.raises(errors.Conflict):
        await gateway.patch_status(TRAINING_JOBS, namespace, "j", version, {"incarnation": 7})
    newer = first["metadata"]["resourceVersion"]
    assert int(newer) > int(version)
    second = await gateway.patch_status(TRAINING_JOBS, namespace, "j", newer, {"phase": "Pending"})
    assert (second["status"]["incarnation"], second["status"]["phase"]) == (1, "Pending")
    third = await gateway.patch_status(
        TRAINING_JOBS, namespace, "j", second["metadata"]["resourceVersion"], {"phase": None}
    )
    assert "phase" not in third["status"], "null removes"


async def test_conflicts_invalid_objects_and_missing_objects_are_distinguished(
    gateway: KubernetesGateway, control_plane: Any
) -> None:
    namespace = control_plane.namespace()
    await gateway.create(PODS, namespace, pod("p"))
    with pytest.raises(errors.AlreadyExists):
        await gateway.create(PODS, namespace, pod("p"))
    with pytest.raises(errors.Invalid, match="containers"):
        await gateway.create(PODS, namespace, {"metadata": {"name": "bad"}, "spec": {"containers": []}})
    with pytest.raises(errors.NotFound):
        await gateway.get(PODS, namespace, "nobody")


async def test_a_delete_spares_a_pod_of_another_uid(gateway: KubernetesGateway, control_plane: Any) -> None:
    namespace = control_plane.namespace()
    made = await gateway.create(PODS, namespace, pod("p"))
    with pytest.raises(errors.Conflict):
        await gateway.delete(PODS, namespace, "p", uid="11111111-2222-3333-4444-555555555555")
    await gateway.delete(PODS, namespace, "p", uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await gateway.delete(PODS, namespace, "p", uid=made["metadata"]["uid"])


def executing(gateway: KubernetesGateway, cache: ClusterCache) -> Executor:
    metrics = Metrics()
    return Executor(gateway, cache, EventRecorder(gateway, metrics, "test"), metrics, 4)


async def test_a_terminating_pod_of_a_lost_node_is_deleted_without_grace_period(
    gateway: KubernetesGateway, control_plane: Any
) -> None:
    namespace = control_plane.namespace()
    cache = ClusterCache()
    executor = executing(gateway, cache)
    body = pod("p")
    body["spec"] |= {"nodeName": "dead", "terminationGracePeriodSeconds": 300}
    made = await gateway.create(PODS, namespace, body)
    cache.pods.upsert(views.pod(made))
    parent = views.cached_object({"metadata": {**made["metadata"], "name": "j", "uid": "j"}})
    uid = made["metadata"]["uid"]

    await executor.execute(parent, [delete_pod("p", uid)])
    (waiting,) = cache.pods
    assert waiting.view.deleting
    assert (await gateway.get(PODS, namespace, "p"))["metadata"]["deletionGracePeriodSeconds"] == 300

    another = "11111111-2222-3333-4444-555555555555"
    await executor.execute(parent, [delete_pod("p", another, grace_seconds=0)])
    assert (await gateway.get(PODS, namespace, "p"))["metadata"]["uid"] == uid, (
        "only the pod of that uid is deleted"
    )

    await executor.execute(parent, [delete_pod("p", uid, grace_seconds=0)])
    with pytest.raises(errors.NotFound):
        await gateway.get(PODS, namespace, "p")
    assert not list(cache.pods), "known before the watch reports it"
    again = await gateway.create(PODS, namespace, pod("p"))
    assert again["metadata"]["uid"] != uid
    await executor.execute(parent, [delete_pod("p", uid, grace_seconds=0)])
    assert await gateway.get(PODS, namespace, "p"), "the new pod of that name is spared"


async def test_a_pod_with_a_finalizer_still_exists(gateway: KubernetesGateway, control_plane: Any) -> None:
    namespace = control_plane.namespace()
    cache = ClusterCache()
    made = await gateway.create(PODS, namespace, pod("p", finalizers=["example.com/held"]))
    parent = views.cached_object({"metadata": {**made["metadata"], "name": "j", "uid": "j"}})
    delete = delete_pod("p", made["metadata"]["uid"], grace_seconds=0)
    await executing(gateway, cache).execute(parent, [delete])
    (held,) = cache.pods
    assert held.view.deleting
    await gateway.patch(PODS, namespace, "p", {"metadata": {"finalizers": None}})


async def test_an_apply_creates_an_object_and_owns_only_its_own_fields(
    gateway: KubernetesGateway, control_plane: Any
) -> None:
    namespace = control_plane.namespace()
    body = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    await gateway.apply(CONFIG_MAPS, namespace, "c", body)
    await gateway.patch(CONFIG_MAPS, namespace, "c", {"data": {"other": "x"}})
    applied = await gateway.apply(CONFIG_MAPS, namespace, "c", {**body, "data": {"a": "2"}})
    assert applied["data"] == {"a": "2", "other": "x"}


async def test_a_list_is_complete_over_pages(control_plane: Any) -> None:
    from .conftest import client_of

    namespace = control_plane.namespace()
    async with await client_of(control_plane) as client:
        gateway = KubernetesGateway(client, Settings(list_page=3, qps=0), Metrics())
        await asyncio.gather(*(gateway.create(PODS, namespace, pod(f"p{n}")) for n in range(10)))
        items, version = await gateway.list(PODS, "convoy.dev/job")
    mine = {raw["metadata"]["name"] for raw in items if raw["metadata"]["namespace"] == namespace}
    assert mine == {f"p{n}" for n in range(10)} and int(version) > 0


async def test_the_server_responds_410_to_an_old_version(gateway: KubernetesGateway) -> None:
    with pytest.raises(errors.Gone):
        async for _ in gateway.watch(TRAINING_JOBS, FORGOTTEN):
            pass


class Link:
    """A TCP proxy to the API server. Tests can cut its connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.to = (parts.hostname, parts.port)
        self.up = True
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.up:
            writer.transport.abort()
            return
        self.connections += 1
        there, back = await asyncio.open_connection(*self.to)
        self._open |= {writer, back}
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
        sink.close()

    def cut(self) -> None:
        """Reset all connections and accept no new ones."""
        self.up = False
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


@asynccontextmanager
async def through(link: Link, plane: Any) -> AsyncIterator[KubernetesGateway]:
    """A gateway that reaches the API server through the proxy."""
    server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    configuration = Configuration(host=f"https://127.0.0.1:{port}")
    configuration.ssl_ca_cert = str(plane.ca_file)
    configuration.api_key["BearerToken"] = f"Bearer {plane.token}"
    async with ApiClient(configuration) as client:
        yield KubernetesGateway(client, Settings(qps=0, request_tries=1), Metrics())
    link.cut()
    server.close()


async def test_a_broken_watch_resumes_without_missed_events(
    gateway: KubernetesGateway, control_plane: Any
) -> None:
    namespace = control_plane.namespace()
    store: Store[Pod] = Store(index=lambda item: (item.namespace, item.job))
    link = Link(control_plane.url)

    def seen() -> set[str]:
        return {item.name for item in store.indexed((namespace, "j"))}

    async with through(link, control_plane) as broken:
        reflector = Reflector(broken, Source(PODS, store, views.pod, "convoy.dev/job"), Metrics())
        task = asyncio.create_task(reflector.run())
        await eventually(reflector.synced.is_set)
        kept = await gateway.create(PODS, namespace, pod("kept"))
        deleted = await gateway.create(PODS, namespace, pod("gone"))
        await eventually(lambda: seen() == {"kept", "gone"})
        relists = reflector._metrics.relists.labels("pods")._value.get()
        link.cut()
        await gateway.delete(PODS, namespace, "gone", uid=deleted["metadata"]["uid"])
        await gateway.create(PODS, namespace, pod("new"))
        link.up = True
        await eventually(lambda: seen() == {"kept", "new"})
        assert reflector._metrics.relists.labels("pods")._value.get() == relists, "by the watch alone"
        assert store.by_uid(kept["metadata"]["uid"]) is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Stale(KubernetesGateway):
    """A gateway whose watches fail while `stale` is True: they start from a version that the API server no
    longer keeps. When the API server reports the error, `stale` becomes False.
    """

    stale = False

    async def watch(self, resource: Any, version: str, selector: str = "") -> AsyncIterator[tuple[str, Any]]:
        try:
            async for event in super().watch(resource, FORGOTTEN if self.stale else version, selector):
                yield event
        except errors.Gone:
            self.stale = False
            raise


async def test_an_expired_version_leads_to_a_list(gateway: KubernetesGateway, control_plane: Any) -> None:
    namespace = control_plane.namespace()
    store: Store[CachedObject] = Store(index=lambda item: (item.namespace, ""))
    link = Link(control_plane.url)

    def seen() -> set[str]:
        return {item.name for item in store.indexed((namespace, ""))}

    async with through(link, control_plane) as broken:
        stale = Stale(broken._client, broken._settings, broken._metrics)
        reflector = Reflector(stale, Source(TRAINING_JOBS, store, views.cached_object), Metrics())
        task = asyncio.create_task(reflector.run())
        await eventually(reflector.synced.is_set)
        deleted = await gateway.create(TRAINING_JOBS, namespace, job("gone"))
        await eventually(lambda: seen() == {"gone"})
        link.cut()
        stale.stale = True
        await gateway.delete(TRAINING_JOBS, namespace, "gone", uid=deleted["metadata"]["uid"])
        await gateway.create(TRAINING_JOBS, namespace, job("new"))
        link.up = True
        await eventually(lambda: seen() == {"new"})
        assert reflector._metrics.relists.labels("trainingjobs")._value.get() >= 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
