"""Raw objects of the API server to what is kept of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from convoy_controllers.plan import PodView
from convoy_controllers.trainingjob import nodes
from convoy_crds.terms import LABEL_AGENT_READY, LABEL_JOB, MANAGED_BY, NODE_CONDITION_QUALIFIED
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.decoding import bounded

_KEPT_ANNOTATIONS = "convoy.dev/"
_MESSAGE = 1024
"""Characters of a message that are kept; the API server's own bound on termination messages is 4096."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod in the cache: where it is, its version, and the view that plans see."""

    namespace: str
    version: int
    job: str
    """Value of the job label."""
    view: PodView

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.view.uid


@dataclass(frozen=True, slots=True)
class Node:
    """A node in the cache."""

    name: str
    uid: str
    version: int
    agent_ready: bool
    """Whether it carries the agent-ready label."""
    ready: bool = False
    """Whether its Ready condition is True: its kubelet reports, and is well."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    created: datetime | None = None
    machine_id: str = ""
    boot_id: str = ""
    taints: tuple[Mapping[str, Any], ...] = ()
    qualified: Mapping[str, Any] = field(default_factory=dict)
    """Convoy's own condition; empty while it has none."""


def managed(job: Mapping[str, Any]) -> bool:
    """Whether a TrainingJob is this operator's: spec.managedBy may give it to another controller."""
    return (job.get("spec") or {}).get("managedBy") in (None, MANAGED_BY)


def in_memory(job: Mapping[str, Any]) -> bool:
    """Whether a TrainingJob keeps its state in the memory of nodes; False for one that cannot be read."""
    tiers = ((job.get("spec") or {}).get("checkpoint") or {}).get("tiers") or {}
    return isinstance(tiers, Mapping) and tiers.get("local") is not None


def saves(job: Mapping[str, Any]) -> bool:
    """Whether a TrainingJob has a place for checkpoints; False for one that cannot be read."""
    tiers = ((job.get("spec") or {}).get("checkpoint") or {}).get("tiers") or {}
    return isinstance(tiers, Mapping) and any(tier is not None for tier in tiers.values())


def settled(job: Mapping[str, Any], nodes: int) -> bool:
    """Whether the incarnation that runs, on so many nodes, has saved something of its own that outlives the
    loss of a node: what lies on other nodes is then of no use any more.
    """
    status = job.get("status") or {}
    marks = (status.get("checkpoint") or {}).get("watermarks") or {}
    tiers = ((job.get("spec") or {}).get("checkpoint") or {}).get("tiers") or {}
    tier = "peer" if tiers.get("peer") is not None and nodes > 1 else "local"
    mark = marks.get(tier) or {}
    formed = bool(status.get("membership"))
    return formed and nodes > 0 and mark.get("incarnation") == status.get("incarnation")


def strict(job: Mapping[str, Any]) -> bool:
    """Whether a TrainingJob is fenced Strict; False for one that cannot be read."""
    try:
        return nodes.strict(TrainingJob.model_validate(job))
    except ValidationError:
        return False


def store_of(job: Mapping[str, Any]) -> str:
    """The CheckpointStore that a TrainingJob names; empty when it names none."""
    return _text_at(job, "spec", "checkpoint", "tiers", "remote", "store")


def source_of(job: Mapping[str, Any]) -> str:
    """The job with whose state a TrainingJob is to begin; empty when it names none."""
    return _text_at(job, "spec", "checkpoint", "resumeFrom", "job")


def _text_at(raw: Mapping[str, Any], *path: str) -> str:
    found: Any = raw
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return str(found or "")


def version_of(raw: Mapping[str, Any]) -> int:
    """resourceVersion as a number: within one resource, the API server documents them as ordered."""
    text = raw["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def node(raw: Mapping[str, Any]) -> Node:
    """What is kept of a node."""
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
        ready=_condition(status, "Ready").get("status") == "True",
        cordoned=bool(spec.get("unschedulable")),
        labels=labels,
        created=datetime.fromisoformat(created) if created else None,
        machine_id=system.get("machineID") or "",
        boot_id=system.get("bootID") or "",
        taints=tuple(spec.get("taints") or ()),
        qualified=_condition(status, NODE_CONDITION_QUALIFIED),
    )


def pod(raw: Mapping[str, Any]) -> Pod:
    """What is kept of a pod."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    return Pod(
        namespace=metadata.get("namespace", ""),
        version=version_of(raw),
        job=labels.get(LABEL_JOB, ""),
        view=pod_view(raw),
    )


def pod_view(raw: Mapping[str, Any]) -> PodView:
    """The view of a pod that plans see."""
    metadata = raw["metadata"]
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    containers = spec.get("containers") or [{}]
    waiting = _waiting(status)
    ended = _terminated(status, containers[0].get("name", ""))
    reason = ended.get("reason") or status.get("reason") or ""
    message = ended.get("message") or status.get("message") or ""
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
        created=_unix(metadata.get("creationTimestamp")),
        deleting="deletionTimestamp" in metadata,
        leaving_since=_unix(metadata.get("deletionTimestamp"))
        - (metadata.get("deletionGracePeriodSeconds") or 0),
        leaves_by=_unix(metadata.get("deletionTimestamp")),
        owner_uid=controller_uid(raw),
        unschedulable=_unschedulable(spec, status)[:_MESSAGE],
        waiting_reason=waiting.get("reason") or "",
        waiting_message=(waiting.get("message") or "")[:_MESSAGE],
        exit_code=ended.get("exitCode"),
        termination_reason=reason,
        termination_message=message[-_MESSAGE:],
        image=containers[0].get("image", ""),
        disruption=_disruption(status),
    )


def _unix(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 when there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def controller_uid(raw: Mapping[str, Any]) -> str | None:
    """Uid of the owner that controls the object."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def _statuses(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Container statuses, init containers first: the order in which they can wait."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """State of the first container that waits for something that may not come."""
    states = [(entry.get("state") or {}).get("waiting") for entry in _statuses(status)]
    found = [state for state in states if state]
    # PodInitializing only says that another container is to be waited for; that one's reason tells why.
    telling = [state for state in found if state.get("reason") != "PodInitializing"]
    chosen: Mapping[str, Any] = (telling or found or [{}])[0]
    return chosen


def _terminated(status: Mapping[str, Any], first: str) -> Mapping[str, Any]:
    """State of the first container once it ended, or of the init container that failed before it."""
    entries = [entry for entry in status.get("containerStatuses") or () if entry.get("name") == first]
    failed = status.get("phase") == "Failed"
    entries += (status.get("initContainerStatuses") or ()) if failed else ()
    for entry in entries:
        state: Mapping[str, Any] = (entry.get("state") or {}).get("terminated") or {}
        if state and (entry.get("name") == first or state.get("exitCode")):
            return state
    return {}


def _unschedulable(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The scheduler's words while it finds no node for the pod; empty when it has one, or was not tried."""
    condition = _condition(status, "PodScheduled")
    if spec.get("nodeName") or condition.get("status") != "False":
        return ""
    return condition.get("message") or condition.get("reason") or "Unschedulable"


def _disruption(status: Mapping[str, Any]) -> str:
    """Why the pod is about to be ended by somebody else; empty when nobody has said so."""
    condition = _condition(status, "DisruptionTarget")
    return condition.get("reason") or "DisruptionTarget" if condition.get("status") == "True" else ""


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of a type; empty when there is none."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return {}


@dataclass(frozen=True, slots=True)
class Parent:
    """A custom resource in the cache, as JSON without its managed fields."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: Mapping[str, Any]

    @property
    def generation(self) -> int:
        """Version of its spec."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def status(self) -> Mapping[str, Any]:
        """Its stored status; empty before the first."""
        return self.raw.get("status") or {}


def parent(raw: Mapping[str, Any]) -> Parent:
    """What is kept of a custom resource."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return Parent(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        version=version_of(raw),
        raw=bounded({**raw, "metadata": metadata}),
    )
