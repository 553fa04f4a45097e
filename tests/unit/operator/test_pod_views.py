"""Tests of views of raw pods as kubelets of Kubernetes 1.36 report them, with statuses in another order
than the template.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.views import ContainerEnd
from convoy_controllers.workers.pod_ends import ended, failed
from convoy_operator.pod_views import pod_view

RANKS, MESH, FETCH, PROXY = "trainer", "mesh-proxy", "fetch-data", "istio-proxy"
NAMED = {"convoy.dev/container": RANKS}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:05Z"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
INITIALISING = {"waiting": {"reason": "PodInitializing"}}


def terminated(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    """Return the state of a terminated container as kubelets write it. Without a special reason, the reason
    is `Error` or `Completed`.
    """
    end = {"exitCode": code, "reason": reason or ("Error" if code else "Completed")}
    return {"terminated": {**end, **({"message": message} if message else {})}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def raw(
    phase: str = "Running",
    own: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a raw pod with the statuses of its containers. A sidecar that admission has added comes before
    the ranks' container.
    """
    own = own if own is not None else {MESH: RUNNING, RANKS: RUNNING}
    inits = [{"name": name, "image": f"{name}:1"} for name in init or {}]
    for one in inits:
        one.update({"restartPolicy": "Always"} if one["name"] == PROXY else {})
    status = {
        "phase": phase,
        "startTime": "2026-01-01T00:00:00Z",
        "initContainerStatuses": [_status(name, state) for name, state in (init or {}).items()],
        # Kubelets sort the statuses by name, not in the order of the containers.
        "containerStatuses": [_status(name, own[name]) for name in sorted(own)],
    }
    containers = [{"name": name, "image": f"{name}:1"} for name in own]
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": NAMED if annotations is None else annotations},
        "spec": {"nodeName": "n", "containers": containers, "initContainers": inits, **more.pop("spec", {})},
        "status": {**status, **more},
    }


def _status(name: str, state: dict[str, Any]) -> dict[str, Any]:
    last = state.get("last")
    now = {key: value for key, value in state.items() if key != "last"}
    return {"name": name, "state": now, "ready": "running" in now, **({"lastState": last} if last else {})}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            raw(spec={"schedulerName": "volcano"}), {"scheduler": "volcano"}, id="another scheduler"
        ),
        pytest.param(raw(spec={"schedulerName": "default-scheduler"}), {"scheduler": ""}, id="the usual one"),
        pytest.param(raw(), {"container": RANKS, "image": "trainer:1", "exit_code": None}, id="both run"),
        pytest.param(
            raw(own={MESH: RUNNING, RANKS: terminated(0)}),
            {"exit_code": 0, "termination_reason": "Completed"},
            id="the ranks ended well, the sidecar goes on",
        ),
        pytest.param(
            raw(own={MESH: terminated(1), RANKS: RUNNING}),
            {"exit_code": None, "failure": None, "waiting_reason": ""},
            id="a sidecar has crashed, which is not the ranks' end",
        ),
        pytest.param(
            raw(own={MESH: terminated(0), RANKS: RUNNING}), {"exit_code": None}, id="a sidecar is done first"
        ),
        pytest.param(
            raw("Pending", {MESH: terminated(3), RANKS: CREATING}),
            {"exit_code": None, "waiting_container": RANKS, "waiting_reason": "ContainerCreating"},
            id="a sidecar failed before the ranks began",
        ),
        pytest.param(
            raw("Failed", {MESH: terminated(137, "OOMKilled"), RANKS: terminated(0)}),
            {"exit_code": 0, "termination_reason": "Completed", "failure": None},
            id="a sidecar that ran out of memory fails the pod, not its ranks",
        ),
        pytest.param(
            raw("Pending", {MESH: waiting("ImagePullBackOff", "no mesh-proxy:1"), RANKS: RUNNING}),
            {
                "waiting_container": MESH,
                "waiting_reason": "ImagePullBackOff",
                "waiting_message": "no mesh-proxy:1",
                "image": "mesh-proxy:1",
            },
            id="the image of the sidecar is missing",
        ),
        pytest.param(
            raw(
                "Pending",
                {MESH: CREATING, RANKS: waiting("CreateContainerConfigError", 'secret "w" not found')},
            ),
            {"waiting_container": RANKS, "waiting_message": 'secret "w" not found'},
            id="a Secret that the ranks' container names is missing",
        ),
        pytest.param(
            raw(
                "Failed",
                {MESH: INITIALISING, RANKS: INITIALISING},
                {FETCH: terminated(42, message="no bucket\n")},
            ),
            {"exit_code": None, "failure": ContainerEnd(FETCH, 42, "Error", "no bucket\n")},
            id="an init container failed",
        ),
        pytest.param(
            raw(
                "Failed", {RANKS: INITIALISING}, {PROXY: terminated(143), FETCH: terminated(137, "OOMKilled")}
            ),
            {"failure": ContainerEnd(FETCH, 137, "OOMKilled", "")},
            id="an init container was out of memory, and the native sidecar before it ended with it",
        ),
        pytest.param(
            raw("Failed", {RANKS: terminated(1)}, {PROXY: terminated(143)}),
            {"exit_code": 1, "failure": None},
            id="a native sidecar ends after the ranks by a signal",
        ),
        pytest.param(
            raw("Pending", {RANKS: INITIALISING}, {FETCH: RUNNING}),
            {"waiting_container": FETCH, "waiting_reason": "PodInitializing"},
            id="an init container takes its time",
        ),
        pytest.param(
            raw(
                "Pending",
                {RANKS: INITIALISING},
                {
                    PROXY: {
                        **waiting("CrashLoopBackOff", "back-off 10s"),
                        "last": terminated(1, message="no config"),
                    }
                },
            ),
            {"waiting_container": PROXY, "failure": ContainerEnd(PROXY, 1, "Error", "no config")},
            id="a native sidecar crashes again and again",
        ),
        pytest.param(
            raw("Pending", {RANKS: INITIALISING}, {PROXY: terminated(1, message="no config")}),
            {"waiting_container": PROXY, "failure": ContainerEnd(PROXY, 1, "Error", "no config")},
            id="a native sidecar between two tries",
        ),
        pytest.param(
            raw(
                "Pending",
                {RANKS: INITIALISING},
                {PROXY: {**RUNNING, "last": terminated(1, message="no config")}},
            ),
            {"waiting_container": PROXY, "failure": ContainerEnd(PROXY, 1, "Error", "no config")},
            id="a native sidecar that is tried once more",
        ),
        pytest.param(
            raw("Failed", {RANKS: terminated(137)}, reason="Evicted", message='Usage of EmptyDir volume "x"'),
            {
                "exit_code": 137,
                "kubelet_reason": "Evicted",
                "kubelet_message": 'Usage of EmptyDir volume "x"',
            },
            id="evicted by its own limit",
        ),
        pytest.param(
            raw(
                "Failed",
                {MESH: terminated(137), RANKS: terminated(0)},
                reason="DeadlineExceeded",
                message="m",
            ),
            {"exit_code": 0, "kubelet_reason": "DeadlineExceeded", "termination_reason": "Completed"},
            id="its own deadline",
        ),
        pytest.param(
            raw(spec={"activeDeadlineSeconds": 60}), {"ends_by": 1767225660.0}, id="a deadline of its own"
        ),
        pytest.param(
            raw(
                "Pending",
                {},
                spec={"nodeName": "", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            ),
            {
                "unschedulable": "its scheduling gates are not removed yet: kueue.x-k8s.io/admission",
                "gated": True,
            },
            id="gated",
        ),
        pytest.param(
            raw(
                spec={
                    "containers": [
                        {"name": MESH, "livenessProbe": {"httpGet": {}}},
                        {
                            "name": RANKS,
                            "startupProbe": {"exec": {}},
                            "lifecycle": {"postStart": {"exec": {}}},
                        },
                    ]
                }
            ),
            {"stoppers": ("startupProbe", "lifecycle.postStart")},
            id="what may stop the ranks' container, and not what may stop others",
        ),
        pytest.param(
            raw(own={MESH: RUNNING, "worker": terminated(3)}, annotations={}),
            {"container": "worker", "exit_code": 3},
            id="a pod from before there was the annotation",
        ),
        pytest.param(
            raw(own={"main": terminated(3)}, annotations={}),
            {"container": "main", "exit_code": 3},
            id="another pod from before the annotation",
        ),
        pytest.param(
            raw(ephemeralContainerStatuses=[_status("debugger", terminated(1))]),
            {"exit_code": None, "failure": None},
            id="a debug container",
        ),
        pytest.param(
            {
                "metadata": {"name": "p", "annotations": None},
                "spec": {"containers": None, "initContainers": None},
                "status": {"initContainerStatuses": None, "containerStatuses": None, "conditions": None},
            },
            {"container": "worker", "image": "", "exit_code": None},
            id="nulls",
        ),
    ],
)
def test_a_pod_view_has_the_fields_that_plans_need(given: dict[str, Any], expected: dict[str, Any]) -> None:
    view = pod_view(given)
    assert {name: getattr(view, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "over", "badly"),
    [
        (raw(), False, False),
        (raw(own={MESH: RUNNING, RANKS: terminated(0)}), True, False),
        (raw(own={MESH: RUNNING, RANKS: terminated(1)}), True, True),
        (raw(own={MESH: terminated(1), RANKS: RUNNING}), False, False),
        (raw("Failed", {MESH: terminated(1), RANKS: terminated(0)}), True, False),
        (raw("Failed", {MESH: terminated(0), RANKS: terminated(1)}), True, True),
        (raw("Failed", {MESH: terminated(0), RANKS: terminated(0)}, reason="Evicted"), True, True),
        (raw("Failed", {RANKS: INITIALISING}, {FETCH: terminated(1)}), True, True),
        (raw("Succeeded", {MESH: terminated(0), RANKS: terminated(0)}), True, False),
    ],
)
def test_a_pod_ends_with_its_rank_container(given: dict[str, Any], over: bool, badly: bool) -> None:
    view = pod_view(given)
    assert (ended(view), failed(view)) == (over, badly)


def test_a_pod_view_has_the_ready_condition_and_its_last_change() -> None:
    changed = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:07Z"}
    view = pod_view(raw(conditions=[changed]))
    assert view.ready and view.ready_changed == 1767225607
    assert not pod_view(raw(conditions=[{**changed, "status": "False"}])).ready
    assert (pod_view(raw()).ready, pod_view(raw()).ready_changed) == (False, 0.0)


def test_a_pod_view_has_the_start_and_the_processor_request_of_the_ranks() -> None:
    given = raw(startTime="2026-01-01T00:00:07Z")
    ranks = next(one for one in given["spec"]["containers"] if one["name"] == RANKS)
    ranks["resources"] = {"requests": {"cpu": "1500m"}}
    view = pod_view(given)
    assert (view.started, view.cpu_millicores) == (1767225607, 1500)
    ranks["resources"] = {"requests": {"cpu": 2}}
    assert pod_view(given).cpu_millicores == 2000
    new = pod_view(raw(startTime=None))
    assert (new.started, new.cpu_millicores) == (0.0, 0)


def test_a_pod_view_has_the_images_that_ran_by_digest() -> None:
    body = raw(init={"fetch": terminated(0)})
    ids = {"fetch": "team/fetch@sha256:1", RANKS: "docker-pullable://team/own@sha256:2", MESH: ""}
    for one in (*body["status"]["initContainerStatuses"], *body["status"]["containerStatuses"]):
        one["imageID"] = ids[one["name"]]
    assert pod_view(body).image_ids == {"fetch": "team/fetch@sha256:1", RANKS: "team/own@sha256:2"}
