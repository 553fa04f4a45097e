"""Explains why a pod ended: because of its program, its template, its kubelet, or a request to stop.

Sources: the kubelet's eviction manager, its admission handlers and `syncPod`; KEP-3329, KEP-753. If a pod
is evicted because its node lacks a resource, it gets a DisruptionTarget condition. If it is evicted because
of its own limits, it does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from convoy_controllers.views import ENDED_PHASES, ContainerEnd, PodView, PodWarning
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

PREEMPTED = 75
"""Exit code of a launcher whose ranks saved their state after a request to stop."""
_UNFIT_CODE, _UNFIT = 127, "python3 at "
"""Exit code and first output of the launcher if the image's Python cannot run it (`convoy_launch.py`)."""
_STOPPED = (PREEMPTED, 128 + 9, 128 + 15)
"""Exit codes that a container may have if the kubelet stopped it."""
_STOPPING = ("Unhealthy", "FailedPostStartHook")
"""Reasons of Events about failed probes and hooks. After such a failure, the kubelet stops the container."""
_FOR_OTHERS = re.compile(r"^(The node was low on resource|The node had condition)")
"""Pattern of the kubelet's message if it evicts a pod because the node lacks a resource. All other
evictions are due to limits of the pod itself.
"""
_BY_TEMPLATE = frozenset(
    {
        "AppArmor",
        "InitContainerRestartPolicyForbidden",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotAdmittedReason",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
    }
)
"""Reasons that a kubelet gives for rejecting a pod because of its template. Every node of the same kind
would reject the pod.
"""
_NODE_FAILS = re.compile(
    r"nvidia|cgroup|device|no space left|input/output error|transport endpoint", re.IGNORECASE
)
"""Pattern of a container runtime's message if the node could not start a container."""
_NO_LAUNCHER = re.compile(r"convoy_launch\.py.*No such file", re.DOTALL)
"""Pattern of the message of the image's Python if the agent's volume was missing."""
_OWN_END = ("", "Error")
"""Termination reasons of a container that ended by itself. Its termination message is then the end of its
log.
"""
_SIGNALS = range(128 + 1, 128 + 64 + 1)
"""Exit codes of processes that a signal ended. Higher codes are a program's own choice: sys.exit(-1) gives
255.
"""
_MAX_OUTPUT_CHARS = 400
"""Maximum number of characters of a container's output in a message."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The reason, the message and the exit code of a pod that ended badly."""

    reason: Reason
    message: str
    exit_code: int | None = None


def ended(pod: PodView) -> bool:
    """Return True if the pod's ranks can no longer run. A sidecar may still keep the pod itself Running."""
    return pod.phase in ENDED_PHASES or pod.exit_code is not None


def failed(pod: PodView) -> bool:
    """Return True if the pod's ranks ended badly.

    A sidecar can also make a pod fail. That is no fault if the ranks' container exited with code 0.
    """
    if pod.exit_code is None or pod.kubelet_reason:
        return pod.phase == "Failed"
    return pod.exit_code != 0


def leaving(pod: PodView) -> bool:
    """Return True if the pod's ranks were asked to stop. Their end is then not their own fault."""
    stopped = bool(pod.stoppers) and pod.exit_code in _STOPPED
    return pod.deleting or bool(pod.disruption or pod.kubelet_reason) or stopped


def overdue(pod: PodView, at: float) -> bool:
    """Return True if the pod's own deadline had passed at `at` (Unix seconds)."""
    return bool(pod.ends_by) and at >= pod.ends_by


def killed(exit_code: int | None) -> bool:
    """Return True for the exit code of a process that a signal ended."""
    return exit_code in _SIGNALS


def describe_end(end: ContainerEnd) -> str:
    """Return text about the end of a container, such as `exited with code 42` or `ran out of memory`."""
    if end.reason == "OOMKilled":
        return "ran out of memory (its resources.limits.memory)"
    suffix = f" ({end.reason})" if end.reason not in ("", "Error") else ""
    return f"exited with code {end.exit_code}{suffix}"


def output_end(message: str) -> str:
    """Return a sentence with the end of a container's output, on one line."""
    text = " ".join(message.split())
    return f"Its output ends with: {text[-_MAX_OUTPUT_CHARS:]}" if text else "It printed nothing"


def pod_end(pod: PodView, warning: PodWarning | None = None) -> PodEnd | None:
    """Return the explanation of a pod that ended badly; None for any other pod. `warning` is the pod's
    newest Event.
    """
    if not failed(pod):
        return None
    return _by_kubelet(pod) or _by_init(pod) or _by_container(pod, warning)


def idle_end(pod: PodView) -> PodEnd | None:
    """Return the explanation of a pod whose launcher exited with code 0 before any rank started; None for
    any other pod.
    """
    if failed(pod) or not ended(pod) or pod.deleting:
        return None
    words = output_end(pod.termination_message)
    facts = {"container": pod.container, "how": "exited with code 0 before any rank started", "words": words}
    return _end(pod, Reasons.CONTAINER_FAILED, **facts)


def _by_kubelet(pod: PodView) -> PodEnd | None:
    """Return the explanation if the kubelet ended the pod or did not admit it; None otherwise."""
    explained = f"{pod.kubelet_reason}: {pod.kubelet_message}".strip(": ")
    if pod.kubelet_reason == "DeadlineExceeded":
        return _end(pod, Reasons.POD_DEADLINE)
    if pod.kubelet_reason == "Evicted" and _FOR_OTHERS.match(pod.kubelet_message):
        return _end(pod, Reasons.POD_EVICTED, why=pod.kubelet_message)
    if pod.kubelet_reason == "Evicted":
        return _end(pod, Reasons.STORAGE_LIMIT, why=pod.kubelet_message or explained)
    if pod.kubelet_reason in _BY_TEMPLATE:
        return _end(pod, Reasons.POD_UNFIT, why=explained)
    if pod.exit_code is None and pod.failure is None:
        why = explained or f"{pod.termination_reason}: {pod.termination_message}".strip(": ")
        return _end(pod, Reasons.POD_NOT_ADMITTED, why=why or "its kubelet gives no reason")
    return None


def _by_init(pod: PodView) -> PodEnd | None:
    if pod.failure is None or pod.exit_code is not None:
        return None
    facts = {"container": pod.failure.name, "how": describe_end(pod.failure)}
    return _end(pod, Reasons.INIT_FAILED, words=output_end(pod.failure.message), **facts)


def _by_container(pod: PodView, warning: PodWarning | None) -> PodEnd:
    """Return the explanation from the end of the ranks' container."""
    text, code, reason = pod.termination_message, pod.exit_code or 0, pod.termination_reason
    absent = reason in ("StartError", "ContainerCannotRun") and "python3" in text
    if absent or (code == _UNFIT_CODE and text.startswith(_UNFIT)):
        return _end(pod, Reasons.NO_PYTHON, why=text)
    if reason == "OOMKilled":
        return _end(pod, Reasons.CONTAINER_OOM)
    facts = {"container": pod.container, "how": describe_end(ContainerEnd(pod.container, code, reason))}
    if pod.stoppers and code in _STOPPED:
        stopped = warning is not None and warning.reason in _STOPPING
        why = f" ({warning.reason}: {warning.message})" if warning and stopped else ""
        return _end(pod, Reasons.CONTAINER_STOPPED, what=" or ".join(pod.stoppers), why=why, **facts)
    # The signal came from outside the program: from the node's out-of-memory killer, or from a container
    # runtime that lost the container. The pod therefore counts as lost.
    if killed(code) or code == PREEMPTED or _by_node(pod):
        why = f"it exited with code {code}" if reason in _OWN_END else reason
        return _end(pod, Reasons.POD_LOST, why=f"{why}: {text}" if text else why)
    return _end(pod, Reasons.CONTAINER_FAILED, words=output_end(text), **facts)


def _by_node(pod: PodView) -> bool:
    """Return True if the node could not start the ranks' container."""
    words = _NO_LAUNCHER if pod.termination_reason in _OWN_END else _NODE_FAILS
    return words.search(pod.termination_message) is not None


def _end(pod: PodView, reason: Reason, **facts: str) -> PodEnd:
    code = pod.failure.exit_code if reason is Reasons.INIT_FAILED and pod.failure else pod.exit_code
    return PodEnd(reason, reason.format(pod=pod.name, node=pod.node, **facts), code)
