"""Builds a worker pod: the user's template, with the launcher in its first container and the agent's volume.

Every kind whose pods run under the launcher uses this module. The pods pass the *restricted* pod security
standard unless the user's template overrides that. Fields of the template win over Convoy's defaults.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.placement.gangs.backend import GangMember
from convoy_controllers.views import PodView
from convoy_controllers.workers.security import container_security, pod_security
from convoy_crds import terms
from convoy_crds.containers import UNNAMED

# The launcher uses UTF-8 for text, whatever the image's locale is.
LAUNCHER = ("python3", "-I", "-S", "-X", "utf8", f"{terms.MOUNT_PATH}/lib/convoy_launch.py")
AGENT_VOLUME = "convoy-agent"
HOME_VOLUME = "convoy-home"
OWN_VOLUMES = frozenset({AGENT_VOLUME, terms.SHM_VOLUME, HOME_VOLUME})
OWN_ENV = frozenset(value for name, value in vars(terms).items() if name.startswith("ENV_"))
"""Environment variables that Convoy sets. Values for them in a template are ignored."""
DEFAULT_GRACE_SECONDS = 30
LAUNCHER_SECONDS = 5
"""Seconds by which the launcher ends its ranks earlier than the kubelet would kill the launcher."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """Everything that defines a worker pod."""

    name: str
    namespace: str
    owner: Mapping[str, Any]
    """Owner reference to the job."""
    labels: Mapping[str, str]
    """Labels by which Convoy and users find the pod, besides those that every worker pod has."""
    template: Mapping[str, Any]
    """The user's pod template as JSON; empty without one."""
    image: str = ""
    """Image of the ranks' container, if the template has none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the ranks' container, besides those that every worker pod has."""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    """Grace period of the pod, if the template has none."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Fields that replace those of the ranks' container. The value None removes a field."""
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    """Mounts of `volumes` into the ranks' container."""
    gang: GangMember | None = None
    """The pod's place in a gang; None if the pod starts alone."""


def kubelet_literal(text: str) -> str:
    """Return the value of an environment variable that the kubelet leaves as `text`. The kubelet would
    expand $(NAME), and it turns $$ into $.
    """
    return text.replace("$", "$$")


def worker_pod(wanted: WorkerPod) -> dict[str, Any]:
    """Return the manifest of the pod, with its intent hash."""
    meta = wanted.template.get("metadata") or {}
    spec = dict(wanted.template.get("spec") or {})
    containers = spec.get("containers") or [{}]
    grace = int(spec.get("terminationGracePeriodSeconds", wanted.grace_seconds))
    if grace != DEFAULT_GRACE_SECONDS:
        spec["terminationGracePeriodSeconds"] = grace
    security = pod_security(spec.get("securityContext"))
    volumes = [
        {"name": AGENT_VOLUME, "csi": {"driver": terms.CSI_DRIVER, "readOnly": True}},
        {"name": terms.SHM_VOLUME, "emptyDir": {"medium": "Memory"}},
        {"name": HOME_VOLUME, "emptyDir": {}},
    ]
    labels = {
        "app.kubernetes.io/name": wanted.owner["name"],
        terms.LABEL_MANAGED: terms.OPERATOR,
        terms.LABEL_KIND: wanted.owner["kind"],
        "app.kubernetes.io/part-of": "convoy",
        **wanted.labels,
    }
    ranks = _ranks_container(wanted, containers[0], grace, security)
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": {**meta.get("labels", {}), **labels},
            # Only Convoy itself may reserve room on a node.
            "annotations": {
                name: text
                for name, text in meta.get("annotations", {}).items()
                if name != terms.ANNOTATION_PLANNED_NODE
            },
            "ownerReferences": [dict(wanted.owner)],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
            "restartPolicy": "Never",
            "nodeSelector": {**spec.get("nodeSelector", {}), terms.LABEL_AGENT_READY: "true"},
            "securityContext": security,
            "containers": [ranks, *containers[1:]],
            "volumes": [*spec.get("volumes", ()), *volumes, *wanted.volumes],
        },
    }
    if wanted.gang is not None:
        body = wanted.gang.join(body)
    body["metadata"]["annotations"][terms.ANNOTATION_INTENT] = intent_hash(body)
    _add_diagnostics(body)
    return body


def _ranks_container(
    wanted: WorkerPod, user: Mapping[str, Any], grace: int, security: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the container of the ranks, in which the launcher takes the place of the user's command."""
    given = user.get("env", ())
    values = {
        terms.ENV_SOCKET: f"{terms.MOUNT_PATH}/agent.sock",
        # The launcher must end its ranks before the kubelet kills it.
        terms.ENV_GRACE_SECONDS: str(max(1, grace - LAUNCHER_SECONDS)),
        **wanted.environment,
    }
    if not any(entry.get("name") == "HOME" for entry in given):
        values[terms.ENV_HOME] = terms.HOME_PATH
    mounts: list[Mapping[str, Any]] = [
        {"name": AGENT_VOLUME, "mountPath": terms.MOUNT_PATH, "readOnly": True},
        {"name": terms.SHM_VOLUME, "mountPath": "/dev/shm"},  # noqa: S108 - a path in the pod
        {"name": HOME_VOLUME, "mountPath": terms.HOME_PATH},
        *wanted.mounts,
    ]
    own_paths = {mount["mountPath"] for mount in user.get("volumeMounts", ())}
    container = {
        **user,
        "name": user.get("name") or UNNAMED,
        "image": user.get("image") or wanted.image,
        "command": list(LAUNCHER),
        "env": [entry for entry in given if entry.get("name") not in OWN_ENV]
        + [{"name": name, "value": value} for name, value in values.items()],
        "volumeMounts": [
            *user.get("volumeMounts", ()),
            *(dict(mount) for mount in mounts if mount["mountPath"] not in own_paths),
        ],
        "securityContext": container_security(user.get("securityContext"), security),
        **wanted.container,
    }
    # The launcher takes no arguments, and the pod must end when the launcher ends. The template's arguments
    # and the container's own restart policy (KEP-5307) are therefore removed.
    for theirs in ("args", "restartPolicy", "restartPolicyRules"):
        container.pop(theirs, None)
    removed = {name for name, value in wanted.container.items() if value is None}
    return {name: value for name, value in container.items() if name not in removed}


def _add_diagnostics(body: dict[str, Any]) -> None:
    """Add the fields by which people and the operator can tell why a pod ended.

    These are the name of the ranks' container, and the end of the log of each container that fails. They
    are not part of the intent hash, so they cause no replacement of a pod.
    """
    annotations, spec = body["metadata"]["annotations"], body["spec"]
    ranks = spec["containers"][0]["name"]
    annotations[terms.ANNOTATION_CONTAINER] = ranks
    annotations.setdefault(terms.ANNOTATION_DEFAULT_CONTAINER, ranks)
    for one in (*spec["containers"], *(spec.get("initContainers") or ())):
        if isinstance(one, dict):
            one.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def with_incarnation(body: dict[str, Any], incarnation: int, avoid: Collection[str]) -> dict[str, Any]:
    """Return the manifest with the incarnation that the pod is created for. The scheduler places the pod on
    a node in `avoid` only if no other node fits.

    The incarnation and `avoid` are not part of the intent hash. A change of them therefore does not replace
    a running pod.
    """
    fresh = copy.deepcopy(body)
    fresh["metadata"]["annotations"][terms.ANNOTATION_BORN] = str(incarnation)
    if avoid:
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(avoid)]
        term = {"weight": 100, "preference": {"matchFields": fields}}
        affinity = fresh["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, term]
    return fresh


def pod_incarnation(pod: PodView) -> int:
    """Return the incarnation that a pod was created for; 0 if it cannot be parsed."""
    text = pod.annotations.get(terms.ANNOTATION_BORN, "")
    return int(text) if text.isdecimal() else 0


def intent_hash(body: Mapping[str, Any]) -> str:
    """Return a digest of the pod as Convoy requests it, before the API server adds defaults."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
