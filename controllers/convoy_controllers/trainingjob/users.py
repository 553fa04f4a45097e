"""The user and the rights of a worker's containers: Convoy's defaults beneath what the template says. Pure.

The defaults pass the *restricted* pod security standard. A container that asks for root or for `privileged`
passes neither that nor is it confined by these defaults: it gets those of the container runtime, as under any
other controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WORKER_UID = 65532
"""The conventional `nonroot` user of distroless images."""
ROOT = 0


def pod_security(stated: object) -> dict[str, Any]:
    """The pod's `securityContext`. A user that the template names keeps the group that the image gives."""
    own = _stated(stated)
    group = {} if "runAsUser" in own else {"runAsGroup": WORKER_UID}
    return {
        "runAsNonRoot": True,
        "runAsUser": WORKER_UID,
        **group,
        "fsGroup": WORKER_UID,
        # Otherwise the kubelet walks through every file of a large volume before each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **own,
    }


def container_security(stated: object, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The `securityContext` of a container in a pod with the security context `pod`."""
    own = _stated(stated)
    if own.get("privileged") or own.get("runAsUser", pod.get("runAsUser")) == ROOT:
        return own
    capabilities = {"drop": ["ALL"], **_stated(own.get("capabilities"))}
    # The API server refuses the pair of CAP_SYS_ADMIN and no escalation.
    escalation = {} if "CAP_SYS_ADMIN" in capabilities.get("add", ()) else {"allowPrivilegeEscalation": False}
    return {**escalation, **own, "capabilities": capabilities}


def refused_root(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields of a template's pod spec that ask for root where the kubelet refuses root, and why.

    Paths are relative to the pod spec. The kubelet judges each container by its own fields, then the pod's.
    """
    pod = pod_security(spec.get("securityContext"))
    for kind in ("initContainers", "containers"):
        listed = spec.get(kind)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            own = _stated(_stated(container).get("securityContext"))
            effective = {**pod, **own}
            if effective["runAsUser"] == ROOT and effective["runAsNonRoot"]:
                inner = f"{kind}[{index}].securityContext"
                place = inner if "runAsUser" in own else "securityContext"
                yield f"{place}.runAsUser", _WAY_OUT.format(place=inner if "runAsNonRoot" in own else place)


_WAY_OUT = (
    "0 is root, which runAsNonRoot: true forbids, Convoy's default. Leave runAsUser out: the image then "
    f"runs as user {WORKER_UID} with a home of its own. Or set {{place}}.runAsNonRoot: false, where the "
    "pod security standard of the namespace allows root"
)


def _stated(value: object) -> dict[str, Any]:
    """The fields that a mapping of a template sets: null is unset, as for the API server."""
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if one is not None}
