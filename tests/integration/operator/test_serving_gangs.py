"""Tests of the gangs of a ServingJob's replicas, with Kubernetes' own gangs on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.bench.placement.gangs.backends import features, native_version
from e2e.cluster import versions
from tests.integration.conftest import ControlPlane, running_control_plane

from .conftest import eventually, installed, running
from .test_gangs import pods_of
from .test_operator import Kubelet
from .test_serving import JOBS, MERGE, server

MINOR = versions.release().kubernetes.rpartition(".")[0]


@pytest.fixture(scope="module")
def gated_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with Kubernetes' own gangs and the topology of gangs."""
    if native_version(MINOR) is None:
        pytest.skip(f"Kubernetes {MINOR} has no PodGroup of its own")
    folder = tmp_path_factory.mktemp("serving-gangs")
    served = [f"scheduling.k8s.io/{native_version(MINOR)}=true"]
    gates = (*features(MINOR), "TopologyAwareWorkloadScheduling=true")
    with running_control_plane(folder, gates, served) as plane:
        yield plane


def pairs(name: str, **spec: Any) -> dict[str, Any]:
    body = server(name, **spec)
    body["spec"]["roles"][0]["groupSize"] = 2
    return body


async def test_each_replica_gets_a_gang_that_goes_with_it(
    gated_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = installed(gated_plane)
    namespace = gated_plane.namespace()
    kubelet, path = Kubelet(installation, namespace), JOBS.format(namespace)
    at = f"/apis/scheduling.k8s.io/{native_version(MINOR)}/namespaces/{namespace}/podgroups"

    async def groups() -> dict[str, Any]:
        """Return the PodGroups by name. One that is deleted stays until kube-controller-manager, which does
        not run here, has seen that it has no pods.
        """
        found = (await installation.call("GET", at))["items"]
        return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}

    async def links() -> dict[str, str]:
        """Return the PodGroup of each pod, by name of the pod."""
        found = await kubelet.list()
        return {one["metadata"]["name"]: one["spec"]["schedulingGroup"]["podGroupName"] for one in found}

    packed = {"topologyKeys": ["rack"], "pack": "Required"}
    async with running(installation, monkeypatch):
        await installation.call("POST", path, pairs("llm", placement=packed))
        await pods_of(kubelet, "llm", 4)
        found, before = await groups(), await links()
        assert sorted(found) == sorted(set(before.values())) and len(found) == 2
        assert before["llm-worker-0-0"] == before["llm-worker-0-1"] != before["llm-worker-1-0"]
        for group in found.values():
            assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
            assert group["spec"]["schedulingConstraints"] == {"topology": [{"key": "rack"}]}
            owner = group["metadata"]["ownerReferences"][0]
            assert (owner["kind"], owner["name"], owner["controller"]) == ("ServingJob", "llm", True)

        # A changed placement keeps the replicas and their PodGroups, whose spec is immutable.
        other = {"placement": {"topologyKeys": ["zone"], "pack": "Preferred"}, "replicas": 3}
        await installation.call("PATCH", f"{path}/llm", {"spec": other}, content_type=MERGE)
        # No node has the label, so that the third replica must wait.

        async def waits() -> bool:
            status = (await installation.call("GET", f"{path}/llm"))["status"]
            degraded = [one for one in status["conditions"] if one["type"] == "Degraded"]
            return bool(degraded and degraded[0]["reason"] == "UnknownTopologyKey")

        await eventually(waits, what="the third replica waits")
        assert await links() == before
        kept = {name: one["metadata"]["uid"] for name, one in (await groups()).items() if name in found}
        assert kept == {name: one["metadata"]["uid"] for name, one in found.items()}

        await installation.call("PATCH", f"{path}/llm", {"spec": {"replicas": 1}}, content_type=MERGE)

        async def one_left() -> bool:
            return len(await groups()) == 1

        await eventually(one_left, what="the PodGroups of the other replicas are gone")
        await installation.call("PATCH", f"{path}/llm", {"spec": {"suspend": True}}, content_type=MERGE)

        async def none_left() -> bool:
            return not await groups()

        await eventually(none_left, what="a suspended job has no PodGroups")
