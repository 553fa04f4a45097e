"""Labels, annotations, finalizers, condition types and other names of Convoy, each defined once."""

from __future__ import annotations

import hashlib

OPERATOR = "convoy-operator"
FIELD_MANAGER = "convoy-operator"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
"""Label of every object that the operator creates. Its value is `OPERATOR`."""
MANAGED_BY = "convoy.dev/operator"

LABEL_JOB = "convoy.dev/job"
LABEL_ROLE = "convoy.dev/role"
LABEL_INDEX = "convoy.dev/index"
LABEL_AGENT_READY = "convoy.dev/agent-ready"

LABEL_NODE_HEALTH = "convoy.dev/node-health"
"""Label on a node with the state of its hardware."""
TAINT_UNQUALIFIED = "convoy.dev/unqualified"
TAINT_SUSPECT = "convoy.dev/suspect"
TAINT_QUARANTINED = "convoy.dev/quarantined"
TAINTS = (TAINT_UNQUALIFIED, TAINT_SUSPECT, TAINT_QUARANTINED)
"""All taints that Convoy puts on nodes. Convoy removes no other taint and cordons no node."""
NODE_CONDITION_QUALIFIED = "convoy.dev/Qualified"
"""Condition on the Node, for other controllers."""

ANNOTATION_INTENT = "convoy.dev/intent-hash"
ANNOTATION_BORN = "convoy.dev/born-incarnation"
"""Annotation with the incarnation that a pod was created for. Later incarnations may restart its ranks in
place.
"""
ANNOTATION_CONTAINER = "convoy.dev/container"
"""Annotation with the name of the ranks' container. Admission webhooks may insert containers before it."""
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation with the container that `kubectl logs` and `kubectl exec` use by default."""

ENV_PARAMS = "CONVOY_PARAMS"
ENV_CHECKPOINT_DIR = "CONVOY_CHECKPOINT_DIR"
ENV_CHECKPOINT_SECONDS = "CONVOY_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_TIERS = "CONVOY_CHECKPOINT_TIERS"
ENV_GRACE_SECONDS = "CONVOY_GRACE_SECONDS"
ENV_HANG_SECONDS = "CONVOY_HANG_SECONDS"
ENV_HOME = "CONVOY_HOME"
"""Folder that any user of the pod may write to. The launcher creates HOME in it if the image has no home."""
ENV_SOCKET = "CONVOY_SOCKET"
ENV_WARM = "CONVOY_WARM"
"""`false` if `recovery.warm` is false. Absent otherwise, so that the default replaces no running pod."""

CSI_DRIVER = "agent.convoy.dev"
HUB_AUDIENCE = "convoy-hub"
HUB_SERVER_NAME = "hub.convoy.dev"
LEASE_NAME = "convoy-operator"
CA_SECRET = "convoy-ca"  # noqa: S105 - the name of a Secret, not its content
CA_CONFIG_MAP = "convoy-ca"

MOUNT_PATH = "/var/run/convoy"
"""Mount path of the agent's CSI volume in a worker pod."""
HOME_PATH = "/var/run/convoy-home"
"""Mount path of a worker pod's empty volume for a home and temporary files."""
STORES_PATH = "/var/lib/convoy/stores"
"""Folder in an agent's pod with the claims of agent.storeVolumes, each at its name."""


_AGENTS = ".agents.convoy.dev"
_LONGEST_SERVER_NAME = 253
"""Most characters of a DNS name. OpenSSL and BoringSSL refuse to request a longer one."""


def agent_server_name(node: str) -> str:
    """Return the server name that clients request from a node's agent in the TLS handshake."""
    name = f"{node}{_AGENTS}"
    if len(name) <= _LONGEST_SERVER_NAME:
        return name
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.digest{_AGENTS}.internal"


def agent_names(node: str) -> list[str]:
    """Return the names in the certificate of a node's agent. Agents identify a caller by the first one."""
    return list(dict.fromkeys((f"{node}{_AGENTS}", agent_server_name(node))))


class ConditionType:
    """Condition types of all kinds. Those without a docstring belong to TrainingJob."""

    VALID = "Valid"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CHECKPOINTING = "Checkpointing"
    """Absent if the job has no spec.checkpoint.tiers."""
    STRAGGLER_DETECTED = "StragglerDetected"
    """Absent until the incarnation's ranks have reported steps."""
    METRICS_DROPPED = "MetricsDropped"
    """Absent while Convoy keeps all metrics that the ranks report."""
    READY = "Ready"
    """Engine: jobs may name it. CheckpointStore: jobs can commit checkpoints to it."""
    QUALIFIED = "Qualified"
    """NodeHealth: a valid sweep has passed the hardware, and there is no evidence against it."""
    ACTING = "Acting"
    """NodeHealth: the wanted action may happen. False names the budget that stops it."""
