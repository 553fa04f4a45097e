"""Tests of permissions that the operator rarely needs."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import pytest
from e2e import rights

from convoy_controllers.resources import HARDWARE_CLASSES, NODE_HEALTHS, Resource
from convoy_operator.client import KubernetesGateway
from convoy_operator.gateway import ensure
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

from .conftest import Installation, client_of, eventually, running
from .test_operator import JOBS, job
from .test_sweeping import API, resource


@pytest.mark.parametrize("resource", [NODE_HEALTHS, HARDWARE_CLASSES], ids=lambda one: one.plural)
async def test_an_object_created_by_another_leader_is_read(
    installation: Installation, resource: Resource
) -> None:
    name = f"{installation.namespace}-one"
    async with await client_of(installation.plane, installation.token) as client:
        gateway = KubernetesGateway(client, Settings(), Metrics())
        made = await ensure(gateway, resource, name)
        found = await ensure(gateway, resource, name)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert rights.Right("convoy-operator", "convoy.dev", resource.plural, "get", name) in requested(
        installation
    )


async def test_an_existing_pod_of_the_same_name_is_read_and_not_changed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    pods, jobs = f"/api/v1/namespaces/{namespace}/pods", JOBS.format(namespace)
    spec = {"containers": [{"name": "theirs", "image": "theirs"}]}
    theirs = await installation.call("POST", pods, {"metadata": {"name": "j-worker-0"}, "spec": spec})

    async def status_message() -> str:
        return str((await installation.call("GET", f"{jobs}/j")).get("status"))

    async def reported() -> bool:
        return "is not this job's" in await status_message()

    async with running(installation, monkeypatch):
        await installation.call("POST", jobs, job("j", replicas=1))
        await eventually(reported, what="the status names the pod's owner")
    (left,) = (await installation.call("GET", pods))["items"]
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert rights.Right("convoy-operator", "", "pods", "get", "j-worker-0", namespace) in requested(
        installation
    )


async def test_obsolete_objects_are_deleted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, long_ago = f"{installation.namespace}-old", "2001-01-01T00:00:00Z"
    sweep, known = f"{API}/healthsweeps/{name}", f"{API}/hardwareclasses/{name}"

    async def patch_status(path: str, **status: Any) -> None:
        merge = "application/merge-patch+json"
        await installation.call("PATCH", f"{path}/status", {"status": status}, content_type=merge)

    async def deleted(path: str) -> bool:
        try:
            await installation.call("GET", path)
        except HTTPError as error:
            return error.code == 404
        return False

    await installation.call("POST", f"{API}/hardwareclasses", resource("HardwareClass", name, {}))
    row = {"name": "machine", "at": long_ago}
    await patch_status(known, metrics=[{"name": "cpu-gemm", "recent": [row]}])
    nobody = {"selector": {"matchLabels": {"no": "node"}}, "ttlSecondsAfterFinished": 0}
    await installation.call("POST", f"{API}/healthsweeps", resource("HealthSweep", name, nobody))
    async with running(installation, monkeypatch):
        await eventually(lambda: deleted(known), what="the class is deleted")

        async def ended() -> bool:
            return "completionTime" in ((await installation.call("GET", sweep)).get("status") or {})

        await eventually(ended, what="the sweep without nodes ends")
        await patch_status(sweep, completionTime=long_ago)
        await eventually(lambda: deleted(sweep), 40, what="the sweep is deleted")
    used = {(one.verb, one.resource) for one in requested(installation)}
    assert {("delete", "healthsweeps"), ("delete", "hardwareclasses")} <= used


def requested(installation: Installation) -> set[rights.Right]:
    """Return the permissions that the operator has used, according to the audit log."""
    return {
        one.right for one in installation.plane.audited_requests(installation.namespace, "convoy-operator")
    }
