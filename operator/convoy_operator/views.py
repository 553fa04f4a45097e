"""Pure functions that convert raw API objects to the objects in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
from pydantic import ValidationError

from convoy_controllers.cached import Announcement, CachedObject, Node, Pod
from convoy_controllers.placement.requests import amounts
from convoy_controllers.spotpool.conventions import CONDITIONS
from convoy_controllers.trainingjob import nodes
from convoy_crds.terms import FIELD_MANAGER, LABEL_AGENT_READY, LABEL_JOB, NODE_CONDITION_QUALIFIED
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import has_formed
from convoy_operator.decoding import bounded
from convoy_operator.pod_views import condition, controller_uid, other_pod, pod_view

__all__ = ["controller_uid", "other_pod", "pod_view"]


def uses_checkpoints(job: Mapping[str, Any]) -> bool:
    """Return True if a TrainingJob has a tier for checkpoints; False if the job is invalid."""
    tiers = ((job.get("spec") or {}).get("checkpoint") or {}).get("tiers") or {}
    return isinstance(tiers, Mapping) and any(tier is not None for tier in tiers.values())


def has_current_checkpoint(job: Mapping[str, Any], nodes: int) -> bool:
    """Return True if the current incarnation, which runs on `nodes` nodes, has saved a checkpoint that
    survives the loss of a node.

    The checkpoints in the memory of other nodes are then no longer needed.
    """
    status = job.get("status") or {}
    marks = (status.get("checkpoint") or {}).get("watermarks") or {}
    tiers = ((job.get("spec") or {}).get("checkpoint") or {}).get("tiers") or {}
    tier = "peer" if tiers.get("peer") is not None and nodes > 1 else "local"
    mark = marks.get(tier) or {}
    return has_formed(status) and nodes > 0 and mark.get("incarnation") == status.get("incarnation")


def strict(job: Mapping[str, Any]) -> bool:
    """Return True if a TrainingJob uses Strict fencing; False if the job is invalid."""
    try:
        return nodes.strict(TrainingJob.model_validate(job))
    except ValidationError:
        return False


def texts_at(path: str, parent: CachedObject) -> frozenset[str]:
    """Return the strings at a field path such as `spec.engine.name`. A field that is a list is written with
    `[]`.
    """
    found: list[Any] = [parent.raw]
    for part in path.split("."):
        name = part.removesuffix("[]")
        found = [one[name] for one in found if isinstance(one, Mapping) and name in one]
        if part.endswith("[]"):
            found = [item for one in found if isinstance(one, list) for item in one]
    return frozenset(one for one in found if isinstance(one, str) and one)


def version_of(raw: Mapping[str, Any]) -> int:
    """Return the resourceVersion as a number, so that versions can be compared. The API server documents
    that the versions of one resource are ordered.
    """
    text = raw["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def node(raw: Mapping[str, Any]) -> Node:
    """Convert a raw node to the `Node` that the cluster cache stores."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    system = status.get("nodeInfo") or {}
    created = metadata.get("creationTimestamp")
    return Node(
        name=metadata["name"],
        uid=metadata["uid"],
        version=version_of(raw),
        agent_ready=labels.get(LABEL_AGENT_READY) == "true",
        ready=condition(status, "Ready").get("status") == "True",
        cordoned=bool(spec.get("unschedulable")),
        labels=labels,
        created=datetime.fromisoformat(created) if created else None,
        machine_id=system.get("machineID") or "",
        boot_id=system.get("bootID") or "",
        provider_id=spec.get("providerID") or "",
        taints=tuple(spec.get("taints") or ()),
        announcements=tuple(
            Announcement(one["type"], str(one.get("message") or ""))
            for one in status.get("conditions") or ()
            if one.get("type") in CONDITIONS and one.get("status") == "True"
        ),
        shutting_down=_shuts_down(condition(status, "Ready")),
        allocatable=amounts(status.get("allocatable")),
        qualified=condition(status, NODE_CONDITION_QUALIFIED),
    )


def _shuts_down(ready: Mapping[str, Any]) -> bool:
    """Return True if a node's Ready condition says that the node shuts down. The kubelet writes this text
    during a graceful node shutdown (pkg/kubelet/nodeshutdown, `ShutdownStatus`).
    """
    return ready.get("status") == "False" and "node is shutting down" in str(ready.get("message"))


def pod(raw: Mapping[str, Any]) -> Pod:
    """Convert a raw pod to the `Pod` that the cluster cache stores."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    return Pod(
        namespace=metadata.get("namespace", ""),
        version=version_of(raw),
        job=labels.get(LABEL_JOB, ""),
        view=pod_view(raw),
    )


def cached_object(raw: Mapping[str, Any]) -> CachedObject:
    """Convert a raw custom resource or applied child to the `CachedObject` that the cluster cache stores."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return CachedObject(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        version=version_of(raw),
        raw=bounded({**raw, "metadata": metadata}),
        owned_fields=_owned_fields(raw["metadata"].get("managedFields") or ()),
    )


def _owned_fields(managed: Iterable[Mapping[str, Any]]) -> int:
    fields = [
        orjson.dumps(one.get("fieldsV1"), option=orjson.OPT_SORT_KEYS)
        for one in managed
        if one.get("manager") == FIELD_MANAGER
        and one.get("operation") == "Apply"
        and not one.get("subresource")
    ]
    return hash(b"".join(fields)) if fields else 0
