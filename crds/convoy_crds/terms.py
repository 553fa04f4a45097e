"""Every label, annotation, finalizer and condition type of Convoy, each named once."""

from __future__ import annotations

import hashlib

OPERATOR = "convoy-operator"
FIELD_MANAGER = "convoy-operator"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
"""Label of every object that the operator made; its value is `OPERATOR`."""
MANAGED_BY = "convoy.dev/operator"

LABEL_JOB = "convoy.dev/job"
LABEL_ROLE = "convoy.dev/role"
LABEL_INDEX = "convoy.dev/index"
LABEL_AGENT_READY = "convoy.dev/agent-ready"

LABEL_NODE_HEALTH = "convoy.dev/node-health"
"""State of a node's hardware, on the node."""
TAINT_UNQUALIFIED = "convoy.dev/unqualified"
TAINT_SUSPECT = "convoy.dev/suspect"
TAINT_QUARANTINED = "convoy.dev/quarantined"
TAINTS = (TAINT_UNQUALIFIED, TAINT_SUSPECT, TAINT_QUARANTINED)
"""All that Convoy ever puts on nodes. It takes none but these away, and cordons nothing."""
NODE_CONDITION_QUALIFIED = "convoy.dev/Qualified"
"""Condition on the Node, for other controllers to read."""

ANNOTATION_INTENT = "convoy.dev/intent-hash"
ANNOTATION_BORN = "convoy.dev/born-incarnation"
"""The incarnation that a pod was created for; later ones may restart its ranks in place."""
ANNOTATION_CONTAINER = "convoy.dev/container"
"""Name of a worker pod's container that runs the ranks: admission may put others before it."""
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The container that `kubectl logs` and `kubectl exec` choose."""

ENV_PARAMS = "CONVOY_PARAMS"
ENV_CHECKPOINT_DIR = "CONVOY_CHECKPOINT_DIR"
ENV_CHECKPOINT_SECONDS = "CONVOY_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_TIERS = "CONVOY_CHECKPOINT_TIERS"
ENV_GRACE_SECONDS = "CONVOY_GRACE_SECONDS"
ENV_HANG_SECONDS = "CONVOY_HANG_SECONDS"
ENV_HOME = "CONVOY_HOME"
"""A folder that any user of the pod may write to; the launcher makes HOME there where the image has none."""
ENV_SOCKET = "CONVOY_SOCKET"
ENV_WARM = "CONVOY_WARM"
"""`false` where `recovery.warm` is; absent otherwise, so that no running pod is replaced for it."""

CSI_DRIVER = "agent.convoy.dev"
HUB_AUDIENCE = "convoy-hub"
HUB_SERVER_NAME = "hub.convoy.dev"
LEASE_NAME = "convoy-operator"
CA_SECRET = "convoy-ca"  # noqa: S105 - the name of a Secret, not its content
CA_CONFIG_MAP = "convoy-ca"

MOUNT_PATH = "/var/run/convoy"
"""Where the agent's CSI volume appears in a worker pod."""
HOME_PATH = "/var/run/convoy-home"
"""Where a worker pod has an empty volume for a home and temporary files."""
STORES_PATH = "/var/lib/convoy/stores"
"""Where the claims of agent.storeVolumes appear in an agent's pod, each in a folder of its name."""


_AGENTS = ".agents.convoy.dev"
_LONGEST_SERVER_NAME = 253
"""Characters of a DNS name. OpenSSL and BoringSSL refuse to ask for a longer one."""


def agent_server_name(node: str) -> str:
    """The name by which the agent of a node is asked for in a TLS handshake."""
    name = f"{node}{_AGENTS}"
    if len(name) <= _LONGEST_SERVER_NAME:
        return name
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.digest{_AGENTS}.internal"


def agent_names(node: str) -> list[str]:
    """The names in the certificate of a node's agent. By the first, agents know who calls."""
    return list(dict.fromkeys((f"{node}{_AGENTS}", agent_server_name(node))))


class ConditionType:
    """Condition types of a TrainingJob."""

    VALID = "Valid"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CHECKPOINTING = "Checkpointing"
    """Absent for a job without spec.checkpoint.tiers."""
    STRAGGLER_DETECTED = "StragglerDetected"
    """Absent until the ranks of an incarnation have told of their steps."""
    METRICS_DROPPED = "MetricsDropped"
    """Absent while all metrics that the ranks report are kept."""
    READY = "Ready"
    """Of an Engine: jobs may name it. Of a CheckpointStore: checkpoints can be committed there."""
    QUALIFIED = "Qualified"
    """Of a NodeHealth: a sweep that still counts has passed the hardware, and nothing speaks against it."""
    ACTING = "Acting"
    """Of a NodeHealth: what is wanted may be done; False says which budget is in the way."""
