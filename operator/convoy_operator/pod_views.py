"""A raw pod to the view that plans see. Pure.

Containers are found by their names. Their order is no guide: admission puts others before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from convoy_controllers.views import ContainerEnd, PodView
from convoy_crds import containers

Raw = Mapping[str, Any]

_KEPT_ANNOTATIONS = "convoy.dev/"
_MESSAGE = 1024
"""Characters of a message that are kept; the API server's own bound on termination messages is 4096."""
_SCHEDULER = "default-scheduler"
_STARTING = frozenset({"", "PodInitializing", "ContainerCreating"})
"""Reasons with which a container waits for its turn, or for a moment."""


def pod_view(raw: Raw) -> PodView:
    """The view of a pod that plans see."""
    metadata = raw["metadata"]
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    specs = {entry.get("name", ""): entry for entry in spec.get("containers") or ()}
    ranks = containers.rank_container(metadata.get("annotations"), list(specs))
    waiting = _waiting(spec, status, ranks)
    state = _state(waiting, "waiting")
    ended = _state(_status_of(status, ranks), "terminated")
    kubelet = status if status.get("phase") == "Failed" else {}
    kubelet_message = (kubelet.get("message") or "")[-_MESSAGE:]
    own = specs.get(ranks, {})
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        phase=status.get("phase", "Pending"),
        node=spec.get("nodeName") or None,
        ip=status.get("podIP") or None,
        labels=dict(metadata.get("labels") or {}),
        annotations={
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if key.startswith(_KEPT_ANNOTATIONS)
        },
        created=unix(metadata.get("creationTimestamp")),
        deleting="deletionTimestamp" in metadata,
        leaving_since=unix(metadata.get("deletionTimestamp"))
        - (metadata.get("deletionGracePeriodSeconds") or 0),
        leaves_by=unix(metadata.get("deletionTimestamp")),
        owner_uid=controller_uid(raw),
        scheduler="" if (name := spec.get("schedulerName") or "") == _SCHEDULER else name,
        unschedulable=_unschedulable(spec, status)[:_MESSAGE],
        gated=bool(spec.get("schedulingGates")),
        container=ranks,
        waiting_container=waiting.get("name") or "",
        waiting_reason=state.get("reason") or "",
        waiting_message=(state.get("message") or "")[:_MESSAGE],
        exit_code=ended.get("exitCode"),
        termination_reason=ended.get("reason") or kubelet.get("reason") or "",
        termination_message=(ended.get("message") or "")[-_MESSAGE:] or kubelet_message,
        failure=_failure(spec, status, waiting),
        kubelet_reason=kubelet.get("reason") or "",
        kubelet_message=kubelet_message,
        ends_by=_ends_by(spec, status),
        stoppers=_stoppers(own),
        image=_image(spec, waiting) or own.get("image") or "",
        disruption=_disruption(status),
    )


def unix(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 when there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def controller_uid(raw: Raw) -> str | None:
    """Uid of the owner that controls the object."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def condition(status: Raw, kind: str) -> Raw:
    """The condition of a type; empty when there is none."""
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            found: Raw = one
            return found
    return {}


def container_names(raw: Raw) -> list[str]:
    """Names of the pod's own containers, in their order."""
    return [entry.get("name", "") for entry in (raw.get("spec") or {}).get("containers") or ()]


def _state(entry: Raw, kind: str, when: str = "state") -> Raw:
    """The `waiting` or `terminated` part of a container's state; empty in any other state."""
    found: Raw = (entry.get(when) or {}).get(kind) or {}
    return found


def _status_of(status: Raw, name: str) -> Raw:
    """The status of one of the pod's own containers; empty before its kubelet has written one."""
    for entry in status.get("containerStatuses") or ():
        if entry.get("name") == name:
            found: Raw = entry
            return found
    return {}


def _waiting(spec: Raw, status: Raw, ranks: str) -> Raw:
    """Status of the first container that waits for something that may not come.

    Init containers come first, since the others wait for them, and then the ranks' own.
    """
    own = [*(status.get("containerStatuses") or ())]
    own.sort(key=lambda entry: entry.get("name") != ranks)
    entries = [*(status.get("initContainerStatuses") or ()), *own]
    found = [entry for entry in entries if (entry.get("state") or {}).get("waiting") is not None]
    # Those only say that another container is to be waited for; that one's reason tells why.
    telling = [entry for entry in found if _state(entry, "waiting").get("reason", "") not in _STARTING]
    # Created containers are nearer to their start than those that wait for an init container.
    creating = [entry for entry in found if _state(entry, "waiting").get("reason") == "ContainerCreating"]
    chosen: Raw = (telling or creating or found or [{}])[0]
    return _initialising(spec, status) or chosen if chosen in found and not telling else chosen


def _initialising(spec: Raw, status: Raw) -> Raw:
    """Status of the init container that the others wait for, told as if it waited; empty without one.

    A sidecar that fails is started again and again: between two tries its last end tells.
    """
    sidecars = _sidecars(spec)
    for entry in status.get("initContainerStatuses") or ():
        name, state = entry.get("name"), entry.get("state") or {}
        waiting = {"name": name, "state": {"waiting": {"reason": "PodInitializing"}}}
        if name in sidecars and state.get("terminated") is not None and status.get("phase") == "Pending":
            return {**waiting, "lastState": state}
        if state.get("running") is not None and not (name in sidecars and entry.get("started")):
            return {**waiting, "lastState": entry.get("lastState") or {}}
    return {}


def _sidecars(spec: Raw) -> set[str]:
    """Names of the init containers that run beside the others and are ended with their pod (KEP-753)."""
    inits = spec.get("initContainers") or ()
    return {entry.get("name", "") for entry in inits if entry.get("restartPolicy") == "Always"}


def _image(spec: Raw, waiting: Raw) -> str:
    """The image that the waiting container asks for."""
    for entry in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if waiting and entry.get("name") == waiting.get("name"):
            return entry.get("image") or ""
    return ""


def _failure(spec: Raw, status: Raw, waiting: Raw) -> ContainerEnd | None:
    """The init container because of which the pod failed, or the last end of the container that waits."""
    if last := _state(waiting, "terminated", "lastState"):
        return _end(waiting, last)
    if status.get("phase") != "Failed":
        return None
    # Whatever the pod ends of, sidecars end with it.
    sidecars = _sidecars(spec)
    for entry in status.get("initContainerStatuses") or ():
        ended = _state(entry, "terminated")
        if ended.get("exitCode") and entry.get("name") not in sidecars:
            return _end(entry, ended)
    return None


def _end(entry: Raw, ended: Raw) -> ContainerEnd:
    message = (ended.get("message") or "")[-_MESSAGE:]
    return ContainerEnd(entry.get("name", ""), ended.get("exitCode") or 0, ended.get("reason") or "", message)


def _ends_by(spec: Raw, status: Raw) -> float:
    """When the kubelet ends the pod for its own activeDeadlineSeconds, which it counts from `startTime`."""
    limit, start = spec.get("activeDeadlineSeconds"), unix(status.get("startTime"))
    return start + limit if limit and start else 0.0


def _stoppers(container: Raw) -> tuple[str, ...]:
    """Probes and hooks of a container that make its kubelet stop it when they fail."""
    found = [name for name in ("livenessProbe", "startupProbe") if container.get(name)]
    found += ["lifecycle.postStart"] if (container.get("lifecycle") or {}).get("postStart") else []
    return tuple(found)


def _unschedulable(spec: Raw, status: Raw) -> str:
    """The scheduler's words while it finds no node for the pod; empty when it has one, or was not tried."""
    scheduled = condition(status, "PodScheduled")
    if spec.get("nodeName") or scheduled.get("status") != "False":
        return ""
    if gates := [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]:
        return f"its scheduling gates are not taken off: {', '.join(gates)}"
    return scheduled.get("message") or scheduled.get("reason") or "Unschedulable"


def _disruption(status: Raw) -> str:
    """Why the pod is about to be ended by somebody else; empty when nobody has said so."""
    found = condition(status, "DisruptionTarget")
    return found.get("reason") or "DisruptionTarget" if found.get("status") == "True" else ""
