"""Tests of gang backends on real API servers: without any PodGroup API, with scheduler-plugins' API installed
while the operator runs, and with Kubernetes' own gangs switched on.
"""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from e2e.bench.placement.gangs import apis
from e2e.bench.placement.gangs.backends import features, native_version
from e2e.cluster import versions
from tests.integration.conftest import ControlPlane, running_control_plane

from convoy_operator import discovery

from .conftest import Installation, eventually, installed, running
from .test_operator import JOBS, Kubelet, job

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GROUPS = f"/apis/{apis.COSCHEDULING_GROUP}/{apis.COSCHEDULING_VERSION}/namespaces/{{}}/podgroups"
MERGE = "application/merge-patch+json"
MINOR = versions.release().kubernetes.rpartition(".")[0]


@pytest.fixture(autouse=True)
def often_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the served APIs every few tenths of a second."""
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.3)


def gang_job(name: str, backend: str, replicas: int = 2) -> dict[str, Any]:
    body = job(name, replicas)
    body["spec"]["placement"] = {"gang": backend}
    return body


async def status_of(installation: Installation, namespace: str, name: str) -> dict[str, Any]:
    return (await installation.call("GET", f"{JOBS.format(namespace)}/{name}")).get("status") or {}


async def reason_is(installation: Installation, namespace: str, name: str, reason: str) -> dict[str, Any]:
    """Wait until the job reports the reason. Return its status."""

    async def reported() -> dict[str, Any]:
        status = await status_of(installation, namespace, name)
        return status if status.get("reason") == reason else {}

    return await eventually(reported, what=f"{name} reports {reason}")


async def pods_of(kubelet: Kubelet, name: str, count: int) -> list[dict[str, Any]]:
    """Wait until the job has this many pods. Return them."""

    async def there() -> list[dict[str, Any]]:
        found = [one for one in await kubelet.list() if one["metadata"]["labels"]["convoy.dev/job"] == name]
        return found if len(found) == count else []

    return await eventually(there, what=f"{count} pods of {name}")


@asynccontextmanager
async def coscheduling_api(installation: Installation) -> AsyncIterator[None]:
    """Serve the PodGroups of scheduler-plugins while the block runs."""
    path = f"/apis/{apis.COSCHEDULING_GROUP}/{apis.COSCHEDULING_VERSION}/podgroups"

    async def served() -> bool:
        try:
            await installation.call("GET", path)
        except urllib.error.HTTPError:
            return False
        return True

    async def removed() -> bool:
        return not await served()

    await installation.call("POST", CRDS, apis.coscheduling())
    try:
        await eventually(served, what="the API is served")
        yield
    finally:
        await installation.call("DELETE", f"{CRDS}/podgroups.{apis.COSCHEDULING_GROUP}")
        await eventually(removed, what="the API is gone")


async def refuse_groups(installation: Installation, namespace: str) -> None:
    """Let admission refuse all PodGroups of a namespace."""
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {
        "apiGroups": [apis.COSCHEDULING_GROUP],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["podgroups"],
    }
    meta = {"metadata": {"name": f"no-gangs-in-{namespace}"}}
    spec = {
        "matchConstraints": {**where, "resourceRules": [rule]},
        "failurePolicy": "Fail",
        "validations": [{"expression": "false", "message": "no gangs here"}],
    }
    await installation.call("POST", f"{ADMISSION}/validatingadmissionpolicies", {**meta, "spec": spec})
    bound = {
        "policyName": meta["metadata"]["name"],
        "validationActions": ["Deny"],
        "matchResources": where,
    }
    await installation.call("POST", f"{ADMISSION}/validatingadmissionpolicybindings", {**meta, "spec": bound})
    probe = {
        "apiVersion": f"{apis.COSCHEDULING_GROUP}/{apis.COSCHEDULING_VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": "probe"},
        "spec": {"minMember": 1},
    }

    async def refused() -> bool:
        try:
            await installation.call("POST", f"{GROUPS.format(namespace)}?dryRun=All", probe)
        except urllib.error.HTTPError as error:
            return error.code in (403, 422)
        return False

    await eventually(refused, what="the policy is in force")


async def test_a_backend_that_appears_later_gets_the_waiting_job(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    kubelet, path = Kubelet(installation, namespace), JOBS.format(namespace)
    async with running(installation, monkeypatch):
        await installation.call("POST", path, gang_job("waits", "Coscheduling"))
        await installation.call("POST", path, gang_job("auto", "Auto"))
        status = await reason_is(installation, namespace, "waits", "GangBackendMissing")
        assert "scheduling.x-k8s.io" in status["message"]
        plain = await pods_of(kubelet, "auto", 2)
        assert len(await kubelet.list()) == 2, "a job whose backend is missing gets no pods"
        assert all(
            "schedulerName" not in one["spec"] or one["spec"]["schedulerName"] == "default-scheduler"
            for one in plain
        )
        assert (await status_of(installation, namespace, "auto"))["placement"]["gang"] == "None"

        async with coscheduling_api(installation):
            pods = await pods_of(kubelet, "waits", 2)
            placement = (await status_of(installation, namespace, "waits"))["placement"]
            assert placement["gang"] == "Coscheduling"
            (group,) = (await installation.call("GET", GROUPS.format(namespace)))["items"]
            assert group["metadata"]["name"] == placement["group"]
            assert group["spec"]["minMember"] == 2
            owner = group["metadata"]["ownerReferences"][0]
            assert (owner["kind"], owner["name"]) == ("TrainingJob", "waits")
            for one in pods:
                assert one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == placement["group"]
                assert one["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
                first = int(group["metadata"]["resourceVersion"])
                assert first < int(one["metadata"]["resourceVersion"]), "the PodGroup comes before its pods"


async def test_a_refused_pod_group_is_reported_and_no_pod_is_created(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    kubelet = Kubelet(installation, namespace)
    async with coscheduling_api(installation):
        await refuse_groups(installation, namespace)
        async with running(installation, monkeypatch):
            await installation.call("POST", JOBS.format(namespace), gang_job("refused", "Coscheduling"))
            status = await reason_is(installation, namespace, "refused", "GangRefused")
            assert "no gangs here" in status["message"]
            assert not await kubelet.list()


@pytest.fixture(scope="module")
def gated_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with Kubernetes' own gangs."""
    if native_version(MINOR) is None:
        pytest.skip(f"Kubernetes {MINOR} has no PodGroup of its own")
    folder = tmp_path_factory.mktemp("gated-plane")
    served = [f"scheduling.k8s.io/{native_version(MINOR)}=true"]
    with running_control_plane(folder, features(MINOR), served) as plane:
        yield plane


async def test_a_native_gang_is_created_and_placed(
    gated_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = installed(gated_plane)
    namespace = gated_plane.namespace()
    kubelet, path = Kubelet(installation, namespace), JOBS.format(namespace)
    groups = f"/apis/scheduling.k8s.io/{native_version(MINOR)}/namespaces/{namespace}/podgroups"

    async def condition() -> dict[str, Any]:
        found = (await status_of(installation, namespace, "whole")).get("conditions") or ()
        return next((one for one in found if one["type"] == "GangScheduled"), {})

    async def placed() -> bool:
        return (await condition()).get("status") == "True"

    async with running(installation, monkeypatch):
        await installation.call("POST", path, gang_job("whole", "Auto"))
        pods = await pods_of(kubelet, "whole", 2)
        (group,) = (await installation.call("GET", groups))["items"]
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        for one in pods:
            assert one["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
        assert (await condition())["reason"] == "GangWaiting"
        kind = {"1.36": "PodGroupScheduled"}.get(MINOR, "PodGroupInitiallyScheduled")
        scheduled = {
            "type": kind,
            "status": "True",
            "reason": "Scheduled",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await installation.call(
            "PATCH",
            f"{groups}/{group['metadata']['name']}/status",
            {"status": {"conditions": [scheduled]}},
            content_type=MERGE,
        )
        await installation.node(f"{namespace}-n")
        await asyncio.gather(
            *(kubelet.start(one, f"{namespace}-n", f"10.1.0.{n}") for n, one in enumerate(pods, 1))
        )
        await eventually(placed, what="the job reports that its gang is placed")
        assert (await condition())["reason"] == "GangPlaced"
        owner = group["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["controller"]) == ("TrainingJob", True), "the PodGroup ends with the job"
