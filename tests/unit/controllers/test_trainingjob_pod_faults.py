"""Tests of the fault of a failed pod: its reason, its message, and whether it blames the node."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.views import ContainerEnd, NodeView, PodView, PodWarning
from convoy_controllers.workers.faults import pod_fault

FETCH = ContainerEnd("fetch-data", 42, "Error", "fetch: no such bucket: traning-data\n")
MISSING = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "s" : configmap "scritps" not found')
PROBES = ("livenessProbe",)


def failed_pod(**facts: Any) -> PodView:
    return PodView(
        **{"name": "p", "uid": "u", "phase": "Failed", "node": "n", "container": "worker", **facts}
    )


@pytest.mark.parametrize(
    ("facts", "reason", "words", "blames"),
    [
        pytest.param(
            {"failure": FETCH},
            "InitContainerFailed",
            ["fetch-data", "code 42", "no such bucket: traning-data", "kubectl logs p -c fetch-data"],
            False,
            id="init container",
        ),
        pytest.param(
            {"failure": ContainerEnd("fetch", 137, "OOMKilled")},
            "InitContainerFailed",
            ["fetch ran out of memory"],
            False,
            id="init container without memory",
        ),
        pytest.param(
            {"exit_code": 2, "termination_reason": "Error", "termination_message": "SyntaxError: x"},
            "ContainerFailed",
            ["container worker exited with code 2", "SyntaxError: x", "kubectl logs p -c worker"],
            False,
            id="the launcher cannot run in this image",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": 'exec: "python3": not',
            },
            "NoPythonInImage",
            ["python3"],
            False,
            id="no Python",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": "mkdir /x: read-only",
            },
            "ContainerFailed",
            ["StartError", "mkdir /x: read-only"],
            False,
            id="a working directory that cannot be made",
        ),
        pytest.param(
            {
                "exit_code": 128,
                "termination_reason": "StartError",
                "termination_message": "nvidia-container-cli",
            },
            "PodLost",
            ["nvidia"],
            True,
            id="a device that the node cannot give",
        ),
        pytest.param(
            {
                "exit_code": 1,
                "termination_reason": "Error",
                "termination_message": "CUDA error: device-side assert triggered",
            },
            "ContainerFailed",
            ["device-side assert"],
            False,
            id="an error of the program's own that names a device",
        ),
        pytest.param(
            {
                "exit_code": 1,
                "termination_reason": "Error",
                "termination_message": "OSError: [Errno 28] No space left on device: '/data/out'",
            },
            "ContainerFailed",
            ["No space left"],
            False,
            id="a volume of the program's that is full",
        ),
        pytest.param(
            {
                "exit_code": 255,
                "termination_reason": "Error",
                "termination_message": "exec /usr/bin/python3: exec format error",
            },
            "ContainerFailed",
            ["exec format error"],
            False,
            id="an image for another architecture",
        ),
        pytest.param(
            {
                "exit_code": 2,
                "termination_message": "can't open file '/x/convoy_launch.py': [Errno 2] No such file",
            },
            "PodLost",
            ["convoy_launch.py"],
            True,
            id="the agent's volume is empty",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "ContainerStatusUnknown"},
            "PodLost",
            ["ContainerStatusUnknown"],
            True,
            id="the node has lost it",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "Error"},
            "PodLost",
            ["137"],
            True,
            id="killed from outside",
        ),
        pytest.param(
            {"exit_code": 137, "termination_reason": "OOMKilled"},
            "ContainerOutOfMemory",
            ["memory"],
            False,
            id="out of memory",
        ),
        pytest.param(
            {"exit_code": 143, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerStopped",
            ["livenessProbe of the template", "Unhealthy: probe failed: 500"],
            False,
            id="a probe of the user's that fails",
        ),
        pytest.param(
            {"exit_code": 75, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerStopped",
            ["livenessProbe"],
            False,
            id="and its ranks saved their state",
        ),
        pytest.param(
            {"exit_code": 1, "termination_reason": "Error", "stoppers": PROBES},
            "ContainerFailed",
            ["code 1"],
            False,
            id="an error of its own beside a probe",
        ),
        pytest.param(
            {
                "exit_code": 143,
                "kubelet_reason": "DeadlineExceeded",
                "kubelet_message": "Pod was active on the",
            },
            "PodDeadlineExceeded",
            ["spec.activeDeadlineSeconds of its template"],
            False,
            id="its own deadline",
        ),
        pytest.param(
            {"exit_code": 0, "kubelet_reason": "DeadlineExceeded"},
            "PodDeadlineExceeded",
            [],
            False,
            id="its own deadline, and ranks that end well when asked to",
        ),
        pytest.param(
            {
                "exit_code": 137,
                "kubelet_reason": "Evicted",
                "kubelet_message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Mi".',
            },
            "StorageLimitExceeded",
            ['EmptyDir volume "tmp"'],
            False,
            id="a full volume",
        ),
        pytest.param(
            {
                "kubelet_reason": "Evicted",
                "kubelet_message": "Pod ephemeral local storage usage exceeds the total limit of 1Gi.",
            },
            "StorageLimitExceeded",
            ["ephemeral local storage"],
            False,
            id="too much written, evicted without a status of its containers",
        ),
        pytest.param(
            {
                "exit_code": 137,
                "kubelet_reason": "Evicted",
                "kubelet_message": "The node was low on resource: ephemeral-storage.",
                "disruption": "TerminationByKubelet",
            },
            "PodEvicted",
            ["The node was low on resource: ephemeral-storage."],
            False,
            id="evicted for its node's sake",
        ),
        pytest.param(
            {"kubelet_reason": "Evicted", "kubelet_message": "The node had condition: [DiskPressure]. "},
            "PodEvicted",
            ["DiskPressure"],
            False,
            id="so by a kubelet that sets no condition",
        ),
        pytest.param(
            {
                "kubelet_reason": "UnexpectedAdmissionError",
                "kubelet_message": "Allocate failed due to no gpu",
            },
            "PodNotAdmitted",
            ["UnexpectedAdmissionError: Allocate failed"],
            True,
            id="not admitted, for something of the node's",
        ),
        pytest.param(
            {
                "kubelet_reason": "SysctlForbidden",
                "kubelet_message": 'forbidden sysctl: "kernel.x"',
            },
            "PodUnfit",
            ["kernel.x"],
            False,
            id="not admitted, for something of the template's",
        ),
        pytest.param({}, "PodNotAdmitted", ["gives no reason"], True, id="nobody says why"),
    ],
)
def test_fault_of_a_failed_pod_has_reason_and_blame(
    facts: dict[str, Any], reason: str, words: list[str], blames: bool
) -> None:
    found = pod_fault(failed_pod(**facts), NodeView("n"), PodWarning("Unhealthy", "probe failed: 500"))
    assert found is not None and found.reason.name == reason
    assert found.policy.blames_node is blames
    assert all(word in found.message for word in words), found.message


def test_event_from_before_the_pod_start_does_not_explain_its_end() -> None:
    pod = failed_pod(exit_code=143, stoppers=PROBES)
    found = pod_fault(pod, NodeView("n"), MISSING)
    assert found is not None and "scritps" not in found.message and "livenessProbe" in found.message


@pytest.mark.parametrize(
    "facts",
    [
        {"phase": "Running", "exit_code": 0},
        {"phase": "Failed", "exit_code": 0, "termination_reason": "Completed"},
        {"phase": "Succeeded", "exit_code": 0},
        {"phase": "Running", "failure": ContainerEnd("proxy", 1)},
    ],
    ids=["a sidecar goes on", "a sidecar has crashed", "all ended well", "a native sidecar crashes"],
)
def test_end_of_a_sidecar_is_not_a_fault(facts: dict[str, Any]) -> None:
    assert pod_fault(failed_pod(**facts), NodeView("n")) is None
