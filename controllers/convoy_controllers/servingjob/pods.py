"""Builds the pods of a replica: the template of the revision's role with Convoy's additions. A pod depends
only on its revision, its place and the gang of its replica.
"""

from __future__ import annotations

import json
from typing import Any

from convoy_controllers.children import owner_reference
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.servingjob.revision import Revision, RevisionSpec, RoleRevision
from convoy_controllers.workers.pod import WorkerPod, kubelet_literal, worker_pod
from convoy_crds import terms
from convoy_crds.layout import Slot
from convoy_crds.servingjob import KIND, ServingJob
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS, TEARDOWN_SECONDS

MODEL_VOLUME = "convoy-model"
AUTH_VOLUME = "convoy-auth"
OWN_VOLUMES = frozenset({MODEL_VOLUME, AUTH_VOLUME})
_STARTUP_CHECKS = 86_400
"""Number of failed startup probes, one a second, after which the kubelet stops a container. A model may load
for long, and a rank that loads but makes no progress is ended by the launcher.
"""


REPLICAS, ACTIVATORS = "true", "activator"
"""Values of the endpoint label: of pods that serve requests, and of pods that hold them at 0 replicas."""
PORT_NAME = "convoy-http"
"""Name of the container's port that receives requests. Pods of two revisions may have two numbers for it."""


def probe_port(port: int) -> int:
    """Return the port on which the launcher answers the kubelet's probes, next to the serving port."""
    return port + 1 if port < 65_535 else port - 1


def address(ip: str, port: int) -> str:
    """Return `host:port` of a pod."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def pod(job: ServingJob, revision: Revision, slot: Slot, group: GangGroup | None = None) -> dict[str, Any]:
    """Return the manifest of a slot's pod. `group`: the gang of the replica; None if each pod starts alone.
    Raises ValueError if the revision lacks the slot's role.
    """
    spec, role = revision.spec, revision.spec.role(slot.role)
    if role is None:
        raise ValueError(f"revision {revision.name} has no role {slot.role!r}")
    metadata = job.metadata
    template = role.template.to_dict() if role.template else {}
    grace = ENDPOINT_LAG_SECONDS + spec.drain_seconds + TEARDOWN_SECONDS
    volumes, mounts = _volumes(spec)
    return worker_pod(
        WorkerPod(
            name=slot.pod,
            namespace=metadata.namespace or "",
            owner=owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid),
            labels=labels(metadata.name, slot.role)
            | {
                terms.LABEL_GROUP: str(slot.replica),
                terms.LABEL_INDEX: str(slot.index),
                terms.LABEL_REVISION: revision.name,
            }
            | ({terms.LABEL_ENDPOINT: _front(slot.role)} if _receives(spec, slot) else {}),
            template=template,
            image=role.image,
            environment=_environment(spec, role, slot),
            grace_seconds=grace,
            container=_probes(role, spec, slot, template) | _ports(role, spec, slot, template),
            volumes=volumes,
            mounts=mounts,
            gang=group.member(slot.role) if group is not None else None,
        )
    )


def _receives(spec: RevisionSpec, slot: Slot) -> bool:
    """Return True if a slot's pod receives requests."""
    return slot.role == spec.serving_role and slot.index == 0


def _front(role: str) -> str:
    """Return the value of the endpoint label in a pod that receives requests."""
    return ACTIVATORS if role == terms.ROLE_ACTIVATOR else REPLICAS


def endpoints(job: str, front: str = REPLICAS) -> dict[str, str]:
    """Return the labels that select the pods that receive requests: `REPLICAS`, whichever role their revision
    names, or `ACTIVATORS`.
    """
    return {terms.LABEL_JOB: job, terms.LABEL_KIND: KIND.name, terms.LABEL_ENDPOINT: front}


def labels(job: str, role: str) -> dict[str, str]:
    """Return the labels by which the pods of a role are selected."""
    return {terms.LABEL_JOB: job, terms.LABEL_KIND: KIND.name, terms.LABEL_ROLE: role}


def selector(job: str, role: str) -> dict[str, str]:
    """Return the labels that select slot 0 of each replica of a role."""
    return labels(job, role) | {terms.LABEL_INDEX: "0"}


def _environment(spec: RevisionSpec, role: RoleRevision, slot: Slot) -> dict[str, str]:
    values = {
        terms.ENV_SERVING_PORT: str(spec.port),
        terms.ENV_DRAIN_SECONDS: str(spec.drain_seconds),
    }
    if role.engine:
        values[terms.ENV_ENDPOINT_LAG_SECONDS] = str(ENDPOINT_LAG_SECONDS)
        values[terms.ENV_READY_PORT] = str(probe_port(spec.port))
        values[terms.ENV_PARAMS] = kubelet_literal(json.dumps(role.params, sort_keys=True))
    else:
        # Most programs close their port at SIGTERM, although proxies still send them requests. Slot 0 needs
        # the other slots until it has finished its requests.
        delay = ENDPOINT_LAG_SECONDS + (spec.drain_seconds if slot.index else 0)
        values[terms.ENV_TERM_DELAY_SECONDS] = str(delay)
    if spec.generation:
        values[terms.ENV_MODEL_PATH] = terms.MODEL_PATH
    elif spec.claim:
        path = f"{terms.MODEL_PATH}/{spec.claim_path}".rstrip("/")
        values[terms.ENV_MODEL_PATH] = kubelet_literal(path)
    if spec.token_secret:
        values[terms.ENV_AUTH_TOKEN_FILE] = f"{terms.AUTH_PATH}/token"
    return values


def _probes(role: RoleRevision, spec: RevisionSpec, slot: Slot, template: dict[str, Any]) -> dict[str, Any]:
    """Return the probes of the ranks' container. The launcher answers for an engine.

    The readiness probe of an own template applies to slot 0 only, because the other slots receive no
    requests.
    """
    if not role.engine:
        containers = (template.get("spec") or {}).get("containers") or [{}]
        if slot.index and "readinessProbe" in containers[0]:
            return {"readinessProbe": None}
        return {}

    def get(path: str, **settings: int) -> dict[str, Any]:
        request = {"path": path, "port": probe_port(spec.port)}
        return {"httpGet": request, "periodSeconds": 1, "timeoutSeconds": 1, **settings}

    return {
        "startupProbe": get("/startup", failureThreshold=_STARTUP_CHECKS),
        "readinessProbe": get("/ready", failureThreshold=2),
        "livenessProbe": get("/live", periodSeconds=10, failureThreshold=3, timeoutSeconds=5),
    }


def _ports(role: RoleRevision, spec: RevisionSpec, slot: Slot, template: dict[str, Any]) -> dict[str, Any]:
    """Return the ports of the ranks' container, if the pod receives requests or uses the node's network. The
    scheduler places no two pods with the same port of the node's network on a node.
    """
    pod_spec = template.get("spec") or {}
    given = (pod_spec.get("containers") or [{}])[0].get("ports") or []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        return {}  # The API server refuses them with a message that names the field.
    own: list[dict[str, Any]] = []
    if _receives(spec, slot):
        own.append({"name": PORT_NAME, "containerPort": spec.port, "protocol": "TCP"})
    if pod_spec.get("hostNetwork"):
        if role.engine:
            own.append({"containerPort": probe_port(spec.port), "protocol": "TCP"})
        # The API server refuses a pod that has a port of the node's network twice.
        taken = [(one["containerPort"], one["protocol"]) for one in own]
        given = [one for one in given if (one.get("containerPort"), one.get("protocol", "TCP")) not in taken]
    return {"ports": [*given, *own]} if own else {}


def _volumes(spec: RevisionSpec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes for the model and the token, and their mounts."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if source := _model_volume(spec):
        volumes.append({"name": MODEL_VOLUME, **source})
        mounts.append({"name": MODEL_VOLUME, "mountPath": terms.MODEL_PATH, "readOnly": True})
    if spec.token_secret:
        volumes.append({"name": AUTH_VOLUME, "secret": {"secretName": spec.token_secret}})
        mounts.append({"name": AUTH_VOLUME, "mountPath": terms.AUTH_PATH, "readOnly": True})
    return volumes, mounts


def _model_volume(spec: RevisionSpec) -> dict[str, Any]:
    """Return the source of the volume with the model; empty if the engine brings its own model. The node's
    agent fills its volume before the ranks start.
    """
    if spec.generation:
        content = {terms.VOLUME_CONTENT: terms.MODEL_CONTENT}
        return {"csi": {"driver": terms.CSI_DRIVER, "readOnly": True, "volumeAttributes": content}}
    if spec.claim:
        return {"persistentVolumeClaim": {"claimName": spec.claim, "readOnly": True}}
    return {}
