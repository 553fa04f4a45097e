"""Tests of pods that admission changes, and of the statuses of pods that do not start or do not end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.trainingjob import finished
from convoy_controllers.workers import waiting
from convoy_operator import pod_events

from .conftest import Installation, eventually, running
from .test_operator import JOBS, Kubelet, job

# Version v1 exists only since Kubernetes 1.36. The test's API server also serves v1beta1.
ADMISSION = "/apis/admissionregistration.k8s.io/v1beta1"
POLICIES, BINDINGS = f"{ADMISSION}/mutatingadmissionpolicies", f"{ADMISSION}/mutatingadmissionpolicybindings"
SIDECAR = 'Object.spec.containers{name: "mesh-proxy", image: "mesh", command: ["sleep", "100000"]}'
MERGE = "application/merge-patch+json"
MISSING = 'MountVolume.SetUp failed for volume "scripts" : configmap "scritps" not found'


async def sidecar_first(installation: Installation, namespace: str) -> None:
    """Let admission insert a sidecar before the containers of all new pods of a namespace."""
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    patch = f'[JSONPatch{{op: "add", path: "/spec/containers/0", value: {SIDECAR}}}]'
    meta = {"metadata": {"name": f"sidecar-of-{namespace}"}}
    spec = {
        "matchConstraints": {**where, "resourceRules": [rule]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    await installation.call("POST", POLICIES, {**meta, "spec": spec})
    bound = {"policyName": meta["metadata"]["name"], "matchResources": where}
    await installation.call("POST", BINDINGS, {**meta, "spec": bound})
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def holds() -> bool:
        made = await installation.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", probe)
        return names(made) == ["mesh-proxy", "c"]

    await eventually(holds, what="the policy is in force")


def names(pod: dict[str, Any]) -> list[str]:
    return [one["name"] for one in pod["spec"]["containers"]]


async def started(installation: Installation, kubelet: Kubelet) -> dict[str, Any]:
    """Wait until the only pod exists and has a node. Return the pod."""
    (pod,) = await eventually(kubelet.list, what="the pod")
    node = f"{installation.namespace}-n"
    await installation.node(node)
    await kubelet.start(pod, node, "10.1.0.1")
    return pod


async def test_causes_reported_only_by_events_reach_the_job(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "INSPECT_SECONDS", 0.2)
    for name in ("MIN_SECONDS", "MAX_SECONDS"):
        monkeypatch.setattr(pod_events, name, 0.2)
    namespace = installation.plane.namespace()
    kubelet, path = Kubelet(installation, namespace), JOBS.format(namespace)
    events = f"/api/v1/namespaces/{namespace}/events"

    async def post_event(number: int, uid: str, message: str) -> None:
        about = {"kind": "Pod", "namespace": namespace, "name": "j-worker-0", "uid": uid}
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {"type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": at}
        meta = {"name": f"e{number}", "namespace": namespace}
        await installation.call("POST", events, {"metadata": meta, "involvedObject": about, **body})

    async def explained() -> dict[str, Any]:
        status = (await installation.call("GET", f"{path}/j")).get("status") or {}
        return status if status.get("reason") == "PodNotStarting" else {}

    async with running(installation, monkeypatch):
        await installation.call("POST", path, job("j", replicas=1))
        pod = await started(installation, kubelet)
        await post_event(1, "another-life-of-it", "of a pod that had this name before")
        await post_event(2, pod["metadata"]["uid"], MISSING)
        status = await eventually(explained, what="the job reports what its pod waits for")
    assert MISSING in status["message"] and "j-worker-0" in status["message"]
    requests = installation.plane.audited_requests(installation.namespace, "convoy-operator")
    found = {one.code for one in requests if (one.right.resource, one.right.verb) == ("events", "list")}
    assert found == {200}


async def test_a_sidecar_is_ended_with_the_job_and_its_pod_stays(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished, "LAUNCHER_EXIT_SECONDS", 3600)
    namespace = installation.plane.namespace()
    kubelet, path = Kubelet(installation, namespace), JOBS.format(namespace)
    await sidecar_first(installation, namespace)
    async with running(installation, monkeypatch) as operator:
        await installation.call("POST", path, job("j", replicas=1))
        pod = await started(installation, kubelet)
        assert names(pod) == ["mesh-proxy", "w"]
        annotations = pod["metadata"]["annotations"]
        assert annotations["convoy.dev/container"] == "w"
        assert annotations["kubectl.kubernetes.io/default-container"] == "w"
        policies = {
            one["terminationMessagePolicy"] for one in pod["spec"]["containers"] if one["name"] == "w"
        }
        assert policies == {"FallbackToLogsOnError"}
        ended = {"phase": "Succeeded", "completionTime": datetime.now(UTC).isoformat()}
        await installation.call("PATCH", f"{path}/j/status", {"status": ended}, content_type=MERGE)
        over = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}
        states = [
            {"name": "mesh-proxy", "ready": True, "state": {"running": {}}},
            {"name": "w", "ready": False, "state": {"terminated": over}},
        ]
        whole = [{**one, "image": "i", "imageID": "", "restartCount": 0} for one in states]
        facts = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": whole}
        await kubelet.status("j-worker-0", facts)

        await eventually(
            lambda: any(one.namespace == namespace and one.view.exit_code == 0 for one in operator.cache.pods)
        )
        monkeypatch.setattr(finished, "LAUNCHER_EXIT_SECONDS", 0)
        again = {"metadata": {"annotations": {"reconcile": "again"}}}
        await installation.call("PATCH", f"{path}/j", again, content_type=MERGE)

        async def has_deadline() -> bool:
            (left,) = await kubelet.list()
            return left["spec"].get("activeDeadlineSeconds") == 1

        await eventually(has_deadline, what="its kubelet is to end the sidecar")
        (left,) = await kubelet.list()
    assert left["metadata"]["uid"] == pod["metadata"]["uid"] and "deletionTimestamp" not in left["metadata"]
    requests = installation.plane.audited_requests(installation.namespace, "convoy-operator")
    assert [one.code for one in requests if (one.right.resource, one.right.verb) == ("pods", "patch")] == [
        200
    ]
