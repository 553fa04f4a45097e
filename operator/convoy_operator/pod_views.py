"""Pure functions that convert a raw pod to the view that plans use.

Containers are found by name and not by position, because admission may insert other containers before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from convoy_controllers.autoscale.quantity import milli_value
from convoy_controllers.cached import OtherPod
from convoy_controllers.placement.requests import known_requests
from convoy_controllers.views import ENDED_PHASES, ContainerEnd, PodView
from convoy_crds import containers
from convoy_crds.job_result import MAX_RESULT_BYTES

Raw = Mapping[str, Any]

_KEPT_ANNOTATIONS = ("convoy.dev/", "kueue.x-k8s.io/")
_MESSAGE = 1024
"""Maximum number of characters of a failed container's termination message; the beginning is cut off. The
API server allows 4096 bytes. The message of another container is a job's result, which is kept whole.
"""
_SCHEDULER = "default-scheduler"
_STARTING = frozenset({"", "PodInitializing", "ContainerCreating"})
"""Reasons in the `waiting` state of a container that waits for another container or is just being created."""


def pod_view(raw: Raw) -> PodView:
    """Return the view of a pod for plans."""
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
        judged=bool(condition(status, "PodScheduled")),
        gated=bool(spec.get("schedulingGates")),
        container=ranks,
        waiting_container=waiting.get("name") or "",
        waiting_reason=state.get("reason") or "",
        waiting_message=(state.get("message") or "")[:_MESSAGE],
        exit_code=ended.get("exitCode"),
        termination_reason=ended.get("reason") or kubelet.get("reason") or "",
        termination_message=_termination_message(ended) or kubelet_message,
        failure=_failure(spec, status, waiting),
        kubelet_reason=kubelet.get("reason") or "",
        kubelet_message=kubelet_message,
        ends_by=_ends_by(spec, status),
        stoppers=_stoppers(own),
        image=_image(spec, waiting) or own.get("image") or "",
        image_ids=_image_ids(status),
        disruption=_disruption(status),
        ready=(ready := condition(status, "Ready")).get("status") == "True",
        ready_changed=unix(ready.get("lastTransitionTime")),
        started=unix(status.get("startTime")),
        requests=_pod_requests(spec),
        priority=spec.get("priority") or 0,
        cpu_millicores=_millis(((own.get("resources") or {}).get("requests") or {}).get("cpu") or 0),
    )


def _pod_requests(spec: Raw) -> dict[str, int]:
    """Return the requests of a pod; nothing if the API server holds a quantity that it would refuse now."""
    return known_requests(spec) or {}


def other_pod(raw: Raw) -> OtherPod:
    """Return the view of a pod that belongs to no job."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    ended = (raw.get("status") or {}).get("phase") in ENDED_PHASES
    version = metadata.get("resourceVersion", "")
    return OtherPod(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        version=int(version) if version.isdigit() else 0,
        node="" if ended else spec.get("nodeName") or "",
        requests={} if ended else _pod_requests(spec),
    )


def _termination_message(ended: Mapping[str, Any]) -> str:
    message = str(ended.get("message") or "")
    return message[-_MESSAGE:] if ended.get("exitCode") else message[: MAX_RESULT_BYTES + 1]


def unix(text: str | None) -> float:
    """Convert an RFC 3339 time to Unix seconds; return 0 for an empty text."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


@lru_cache(maxsize=256)
def _millis(quantity: str | int) -> int:
    """Return a quantity in thousandths."""
    return milli_value(quantity)


def controller_uid(raw: Raw) -> str | None:
    """Return the uid of the owner that controls the object; None if there is no such owner."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def condition(status: Raw, kind: str) -> Raw:
    """Return the condition with the type `kind` from a status; empty if there is none."""
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            found: Raw = one
            return found
    return {}


def container_names(raw: Raw) -> list[str]:
    """Return the names of the pod's regular containers in the order of the spec."""
    return [entry.get("name", "") for entry in (raw.get("spec") or {}).get("containers") or ()]


def _state(entry: Raw, kind: str, when: str = "state") -> Raw:
    """Return the part `kind` (`waiting` or `terminated`) of a container's state; empty if the container is
    in another state. `when` is `state` for the current state or `lastState` for the previous one.
    """
    found: Raw = (entry.get(when) or {}).get(kind) or {}
    return found


def _status_of(status: Raw, name: str) -> Raw:
    """Return the status of a regular container; empty if the kubelet has not written one yet."""
    for entry in status.get("containerStatuses") or ():
        if entry.get("name") == name:
            found: Raw = entry
            return found
    return {}


def _waiting(spec: Raw, status: Raw, ranks: str) -> Raw:
    """Return the status of the first container that may wait forever; empty if no container waits.

    Init containers come first, because the other containers wait for them. The container of the ranks comes
    next.
    """
    own = [*(status.get("containerStatuses") or ())]
    own.sort(key=lambda entry: entry.get("name") != ranks)
    entries = [*(status.get("initContainerStatuses") or ()), *own]
    found = [entry for entry in entries if (entry.get("state") or {}).get("waiting") is not None]
    # Prefer a container whose reason is not in `_STARTING`. Containers with those reasons only wait for it,
    # so its reason is the cause.
    telling = [entry for entry in found if _state(entry, "waiting").get("reason", "") not in _STARTING]
    # Next, prefer a container in ContainerCreating. Containers in PodInitializing still wait for an init
    # container.
    creating = [entry for entry in found if _state(entry, "waiting").get("reason") == "ContainerCreating"]
    chosen: Raw = (telling or creating or found or [{}])[0]
    return _initialising(spec, status) or chosen if chosen in found and not telling else chosen


def _initialising(spec: Raw, status: Raw) -> Raw:
    """Return the status of the init container that the other containers wait for, in the form of a waiting
    container. Return an empty one if there is none.

    The kubelet restarts a failing sidecar repeatedly. Between two starts, the sidecar's last termination is
    in `lastState`.
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
    """Return the names of the sidecars, which are init containers that run until their pod ends (KEP-753)."""
    inits = spec.get("initContainers") or ()
    return {entry.get("name", "") for entry in inits if entry.get("restartPolicy") == "Always"}


def _image(spec: Raw, waiting: Raw) -> str:
    """Return the image of the waiting container; empty if no container waits."""
    for entry in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if waiting and entry.get("name") == waiting.get("name"):
            return entry.get("image") or ""
    return ""


def _image_ids(status: Raw) -> dict[str, str]:
    """Return the image by digest that each container ran, without the prefix of old container runtimes."""
    entries = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    found = {entry.get("name", ""): _digest(entry.get("imageID") or "") for entry in entries}
    return {name: digest for name, digest in found.items() if digest}


@lru_cache(maxsize=1024)
def _digest(image_id: str) -> str:
    """Return an image id without a scheme. Pods with the same image share the text."""
    return image_id.rpartition("://")[2]


def _failure(spec: Raw, status: Raw, waiting: Raw) -> ContainerEnd | None:
    """Return the last end of the waiting container. If it never ended and the pod has failed, return the
    end of the init container that caused the pod's failure. Return None if neither container has ended.
    """
    if last := _state(waiting, "terminated", "lastState"):
        return _end(waiting, last)
    if status.get("phase") != "Failed":
        return None
    # Ignore sidecars: they end together with the pod and are not the cause.
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
    """Return the Unix time in seconds when activeDeadlineSeconds ends the pod; 0 without a deadline. The
    kubelet counts the deadline from `startTime`.
    """
    limit, start = spec.get("activeDeadlineSeconds"), unix(status.get("startTime"))
    return start + limit if limit and start else 0.0


def _stoppers(container: Raw) -> tuple[str, ...]:
    """Return the names of a container's probes and hooks whose failure makes the kubelet stop the
    container.
    """
    found = [name for name in ("livenessProbe", "startupProbe") if container.get(name)]
    found += ["lifecycle.postStart"] if (container.get("lifecycle") or {}).get("postStart") else []
    return tuple(found)


def _unschedulable(spec: Raw, status: Raw) -> str:
    """Return the scheduler's message if it found no node for the pod. Return an empty text if the pod has a
    node or the scheduler has not tried yet.
    """
    scheduled = condition(status, "PodScheduled")
    if spec.get("nodeName") or scheduled.get("status") != "False":
        return ""
    if gates := [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]:
        return f"its scheduling gates are not removed yet: {', '.join(gates)}"
    return scheduled.get("message") or scheduled.get("reason") or "Unschedulable"


def _disruption(status: Raw) -> str:
    """Return the reason of the disruption that is announced for the pod; empty if none is announced."""
    found = condition(status, "DisruptionTarget")
    return found.get("reason") or "DisruptionTarget" if found.get("status") == "True" else ""
