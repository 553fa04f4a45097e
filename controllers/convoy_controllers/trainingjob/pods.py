"""Builds the pod of a slot: the user's template with Convoy's additions."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection
from typing import Any

from convoy_controllers.trainingjob.users import container_security, pod_security
from convoy_controllers.views import PodView
from convoy_crds import terms
from convoy_crds.containers import UNNAMED
from convoy_crds.engine import Engine
from convoy_crds.layout import Slot
from convoy_crds.meta import API_VERSION
from convoy_crds.trainingjob import Role, TrainingJob

# The launcher uses UTF-8 for text, whatever the image's locale is.
LAUNCHER = ("python3", "-I", "-S", "-X", "utf8", f"{terms.MOUNT_PATH}/lib/convoy_launch.py")
AGENT_VOLUME = "convoy-agent"
SHM_VOLUME = "convoy-shm"
HOME_VOLUME = "convoy-home"
OWN_VOLUMES = frozenset({AGENT_VOLUME, SHM_VOLUME, HOME_VOLUME})
OWN_ENV = frozenset(value for name, value in vars(terms).items() if name.startswith("ENV_"))
"""Environment variables that Convoy sets. Values for them in a template are ignored."""


def _role(job: TrainingJob, slot: Slot) -> Role:
    return next(role for role in job.spec.roles if role.name == slot.role)


def _environment(job: TrainingJob, grace_seconds: int) -> list[dict[str, str]]:
    values = {
        terms.ENV_SOCKET: f"{terms.MOUNT_PATH}/agent.sock",
        # The launcher must end its ranks before the kubelet kills it. The ranks therefore get 5 s less than
        # the pod's grace period.
        terms.ENV_GRACE_SECONDS: str(max(1, grace_seconds - 5)),
    }
    if job.spec.engine:
        # The kubelet would expand $(NAME), so each $ is doubled; the kubelet turns $$ into $.
        values[terms.ENV_PARAMS] = json.dumps(job.spec.engine.params, sort_keys=True).replace("$", "$$")
    tiers = job.spec.checkpoint.tiers
    if tiers.any:
        values[terms.ENV_CHECKPOINT_TIERS] = ",".join(tiers.names)
        values[terms.ENV_CHECKPOINT_SECONDS] = str(job.spec.checkpoint.interval_seconds)
    if not job.spec.recovery.warm:
        values[terms.ENV_WARM] = "false"
    return [{"name": name, "value": value} for name, value in values.items()]


def _container(
    job: TrainingJob,
    engine: Engine | None,
    user: dict[str, Any],
    grace_seconds: int,
    security: dict[str, Any],
) -> dict[str, Any]:
    environment = _environment(job, grace_seconds)
    if not any(entry.get("name") == "HOME" for entry in user.get("env", ())):
        environment.append({"name": terms.ENV_HOME, "value": terms.HOME_PATH})
    mounts: list[dict[str, Any]] = [
        {"name": AGENT_VOLUME, "mountPath": terms.MOUNT_PATH, "readOnly": True},
        {"name": SHM_VOLUME, "mountPath": "/dev/shm"},  # noqa: S108 - a path in the pod
        {"name": HOME_VOLUME, "mountPath": terms.HOME_PATH},
    ]
    own_paths = {mount["mountPath"] for mount in user.get("volumeMounts", ())}
    container = {
        **user,
        "name": user.get("name") or UNNAMED,
        "image": user.get("image") or (engine.spec.image if engine else ""),
        "command": list(LAUNCHER),
        "env": [entry for entry in user.get("env", ()) if entry.get("name") not in OWN_ENV] + environment,
        "volumeMounts": [
            *user.get("volumeMounts", ()),
            *(m for m in mounts if m["mountPath"] not in own_paths),
        ],
        "securityContext": container_security(user.get("securityContext"), security),
    }
    # The launcher takes no arguments, and the pod must end when the launcher ends. The template's arguments
    # and the container's own restart policy (KEP-5307) are therefore removed.
    for theirs in ("args", "restartPolicy", "restartPolicyRules"):
        container.pop(theirs, None)
    return container


def pod(job: TrainingJob, engine: Engine | None, slot: Slot) -> dict[str, Any]:
    """Return the manifest of a slot's pod, with its intent hash.

    The pod passes the *restricted* pod security standard unless the user's template overrides that. Fields
    of the template win over Convoy's defaults.
    """
    template = _role(job, slot).template
    meta = template.metadata.to_dict() if template else {}
    spec = template.spec.to_dict() if template else {}
    containers = spec.get("containers") or [{}]
    volumes = [
        {"name": AGENT_VOLUME, "csi": {"driver": terms.CSI_DRIVER, "readOnly": True}},
        {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}},
        {"name": HOME_VOLUME, "emptyDir": {}},
    ]
    grace = int(spec.get("terminationGracePeriodSeconds", 30))
    security = pod_security(spec.get("securityContext"))
    labels = {
        "app.kubernetes.io/name": job.metadata.name,
        terms.LABEL_MANAGED: terms.OPERATOR,
        "app.kubernetes.io/part-of": "convoy",
        terms.LABEL_JOB: job.metadata.name,
        terms.LABEL_ROLE: slot.role,
        terms.LABEL_INDEX: str(slot.index),
    }
    owner = {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": slot.pod,
            "namespace": job.metadata.namespace,
            "labels": {**meta.get("labels", {}), **labels},
            "annotations": dict(meta.get("annotations", {})),
            "ownerReferences": [owner],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
            "restartPolicy": "Never",
            "nodeSelector": {**spec.get("nodeSelector", {}), terms.LABEL_AGENT_READY: "true"},
            "securityContext": security,
            "containers": [_container(job, engine, containers[0], grace, security), *containers[1:]],
            "volumes": [*spec.get("volumes", ()), *volumes],
        },
    }
    body["metadata"]["annotations"][terms.ANNOTATION_INTENT] = intent_hash(body)
    _add_diagnostics(body)
    return body


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


def intent_hash(body: dict[str, Any]) -> str:
    """Return a digest of the pod as Convoy requests it, before the API server adds defaults."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
