"""Sets the user and the rights of a worker's containers. The template's own fields win over Convoy's
defaults. Pure.

The defaults pass the *restricted* pod security standard. A container that asks for root or `privileged`
does not pass it. Such a container gets the defaults of the container runtime, as under any other
controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WORKER_UID = 65532
"""The conventional `nonroot` user of distroless images."""
ROOT = 0


def pod_security(given: object) -> dict[str, Any]:
    """Return the pod's `securityContext`. If the template sets a user, the group comes from the image."""
    own = _set_fields(given)
    group = {} if "runAsUser" in own else {"runAsGroup": WORKER_UID}
    return {
        "runAsNonRoot": True,
        "runAsUser": WORKER_UID,
        **group,
        "fsGroup": WORKER_UID,
        # With the default fsGroupChangePolicy, the kubelet would change the owner of every file of a large
        # volume before each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **own,
    }


def container_security(given: object, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `securityContext` of a container. `pod` is the `securityContext` of its pod."""
    own = _set_fields(given)
    if own.get("privileged") or own.get("runAsUser", pod.get("runAsUser")) == ROOT:
        return own
    capabilities = {"drop": ["ALL"], **_set_fields(own.get("capabilities"))}
    # The API server rejects allowPrivilegeEscalation: false together with CAP_SYS_ADMIN, so the field is then
    # left out.
    escalation = {} if "CAP_SYS_ADMIN" in capabilities.get("add", ()) else {"allowPrivilegeEscalation": False}
    return {**escalation, **own, "capabilities": capabilities}


def refused_root(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a template's pod spec that ask for root although the kubelet rejects it, and why.

    Paths are relative to the pod spec. The kubelet checks each container by its own fields first, then by
    the pod's.
    """
    pod = pod_security(spec.get("securityContext"))
    for kind in ("initContainers", "containers"):
        listed = spec.get(kind)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            own = _set_fields(_set_fields(container).get("securityContext"))
            effective = {**pod, **own}
            if effective["runAsUser"] == ROOT and effective["runAsNonRoot"]:
                inner = f"{kind}[{index}].securityContext"
                place = inner if "runAsUser" in own else "securityContext"
                yield f"{place}.runAsUser", _WAY_OUT.format(place=inner if "runAsNonRoot" in own else place)


_WAY_OUT = (
    "user 0 is root, which runAsNonRoot: true (Convoy's default) forbids. Remove runAsUser: the container "
    f"then runs as user {WORKER_UID} with a home directory of its own. Or, if the namespace's pod security "
    "standard allows root, set {place}.runAsNonRoot: false"
)


def _set_fields(value: object) -> dict[str, Any]:
    """Return the fields that the template sets in a mapping. Null counts as unset, as it does for the API
    server.
    """
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if one is not None}
