"""Names that Convoy uses in objects: labels, annotations, finalizers, condition types and others. Each name
is defined once.
"""

from __future__ import annotations

import hashlib

OPERATOR = "convoy-operator"
FIELD_MANAGER = "convoy-operator"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
"""Label of every object that the operator creates. Its value is `OPERATOR`."""
MANAGED_BY = "convoy.dev/operator"

LABEL_JOB = "convoy.dev/job"
LABEL_ROLE = "convoy.dev/role"
ROLE_ACTIVATOR = "activator"
"""Role of the pods that hold the requests of a ServingJob with 0 replicas."""
ENGINE_ACTIVATOR = "activator"
"""Name of the Engine of these pods."""
LABEL_INDEX = "convoy.dev/index"
LABEL_MEMBERSHIP = "convoy.dev/membership"
"""Label of a pod of an Independent role. Its value is `Independent`."""
LABEL_KIND = "convoy.dev/kind"
"""Label of a pod with the kind of its job."""
LABEL_GROUP = "convoy.dev/group"
"""Label of a ServingJob's pod with the number of its replica within the role."""
LABEL_REVISION = "convoy.dev/revision"
"""Label of a ServingJob's pod with the name of its revision."""
LABEL_ENDPOINT = "convoy.dev/endpoint"
"""Label of the ServingJob's pods that receive requests. Its value is `true`."""
LABEL_SPOT_POOL = "convoy.dev/spot-pool"
"""Label of a pod with the name of the SpotPool on whose nodes it is placed."""
ANNOTATION_CAPACITY = "convoy.dev/capacity-mode"
"""Annotation of a pod of a SpotPool: the capacity for which it was created, `Spot` or `OnDemand`."""
ANNOTATION_PLACEMENT = "convoy.dev/spot-placement"
"""Annotation of a pod of a SpotPool: the hash of the selector and tolerations with which it was created."""
ANNOTATION_PRICE_AS_OF = "convoy.dev/price-as-of"
"""Annotation of a ConfigMap with prices: the time at which they were read, in RFC 3339."""
SHM_VOLUME = "convoy-shm"
"""Name of the volume that Convoy gives each pod for shared memory."""
LABEL_AGENT_READY = "convoy.dev/agent-ready"
LABEL_FAULT_INJECTION = "convoy.dev/fault-injection"
"""Label of a node on which agents may inject faults. Its value is `true`. The cluster's administrator sets
it.
"""
LABEL_EXPERIMENT = "convoy.dev/experiment"
"""Label of a job with the name of its Experiment."""
LABEL_PLAN = "convoy.dev/plan"
"""Label of an Experiment's job with the first 12 digits of the plan's hash."""
LABEL_BLOCK = "convoy.dev/block"
LABEL_ARM = "convoy.dev/arm"
LABEL_ATTEMPT = "convoy.dev/attempt"
ENGINE_ANALYSIS = "experiment-analysis"
"""Name of the Engine that registers the plan of an Experiment and analyses its blocks."""
ENGINE_SIMULATION = "experiment-simulation"
"""Name of the Engine that runs and tunes the simulated arms of an Experiment."""
ENGINE_LOAD = "load"
"""Name of the Engine that sends requests to a ServingJob."""

DEFAULT_POLICY = "default"
"""Name of the GuardPolicy that comes with the chart."""
LABEL_NODE_HEALTH = "convoy.dev/node-health"
"""Label on a node. Its value is the state of the node's hardware."""
TAINT_UNQUALIFIED = "convoy.dev/unqualified"
TAINT_SUSPECT = "convoy.dev/suspect"
TAINT_QUARANTINED = "convoy.dev/quarantined"
TAINT_SPOT_NOTICE = "convoy.dev/spot-notice"
"""Taint of a spot node that its provider takes back soon."""
TAINTS = (TAINT_UNQUALIFIED, TAINT_SUSPECT, TAINT_QUARANTINED, TAINT_SPOT_NOTICE)
"""All taints that Convoy adds to nodes. Convoy removes no other taints, and cordons no nodes."""
NODE_CONDITION_QUALIFIED = "convoy.dev/Qualified"
"""Condition that Convoy sets on a Node. It is meant for other controllers."""

ANNOTATION_INTENT = "convoy.dev/intent-hash"
ANNOTATION_BORN = "convoy.dev/born-incarnation"
"""Annotation with the incarnation for which a pod was created. Later incarnations may restart the ranks in
the same pod.
"""
ANNOTATION_PLANNED_NODE = "convoy.dev/planned-node"
"""Annotation with the node that Convoy chose for a pod. The pod's affinity prefers this node."""
ANNOTATION_QUEUE_DOMAIN = "convoy.dev/queue-domain"
"""Annotation with the domain of the topology that the pod's queue chose for it."""
ANNOTATION_DATASET_VERSION = "convoy.dev/dataset-version"
"""Annotation of a job with the version of the data that it reads. Its user sets it."""
ANNOTATION_REVISION = "convoy.dev/code-revision"
"""Annotation of a job with the commit of the code that it runs. Its user sets it."""
ANNOTATION_CONTAINER = "convoy.dev/container"
"""Annotation with the name of the ranks' container. It is needed because admission webhooks may insert
containers before that container.
"""
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation with the name of the container that `kubectl logs` and `kubectl exec` use by default."""

ENV_PARAMS = "CONVOY_PARAMS"
ENV_CHECKPOINT_BY_DEFAULT = "CONVOY_CHECKPOINT_BY_DEFAULT"
"""Variable that is `true` if the job has checkpoints in memory without `spec.checkpoint.tiers`. A fault of
its checkpoints must then never end the program.
"""
ENV_CHECKPOINT_DIR = "CONVOY_CHECKPOINT_DIR"
ENV_CHECKPOINT_JOURNAL = "CONVOY_CHECKPOINT_JOURNAL"
"""Variable that is `false` if `spec.checkpoint.journal` is false, and absent otherwise."""
ENV_CHECKPOINT_SECONDS = "CONVOY_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_TIERS = "CONVOY_CHECKPOINT_TIERS"
ENV_GRACE_SECONDS = "CONVOY_GRACE_SECONDS"
ENV_HANG_SECONDS = "CONVOY_HANG_SECONDS"
ENV_HOME = "CONVOY_HOME"
"""Variable with the path of a folder that any user of the pod may write to. If the image has no home, the
launcher creates a home in this folder.
"""
ENV_SOCKET = "CONVOY_SOCKET"
ENV_KEY_FILE = "CONVOY_KEY_FILE"
"""Variable with the file that holds the key of the rank's incarnation. The launcher sets it."""
ENV_JOB_KEY_FILE = "CONVOY_JOB_KEY_FILE"
"""Variable with the file that holds the key of the TrainingJob, which all its pods share."""
ENV_MEMBERS_FILE = "CONVOY_MEMBERS_FILE"
"""Variable with the file that holds the addresses of the process group's pods. Only pods of Independent roles
have it.
"""
ENV_ROLE_REPLICAS = "CONVOY_ROLE_REPLICAS"
"""Variable with the number of replicas of the role. Only pods of Independent roles have it."""
ENV_SERVING_PORT = "CONVOY_SERVING_PORT"
"""Variable with the port on which a serving rank accepts requests."""
ENV_KEPT_LISTENER = "CONVOY_KEPT_LISTENER"
"""Variable with the Unix socket of the launcher's service that keeps a serving rank's listening socket. The
launcher sets it.
"""
ENV_SERVING_HOST = "CONVOY_SERVING_HOST"
"""Variable with the address on which a serving rank accepts requests. It is absent in a pod, which uses all
its addresses.
"""
ENV_READY_PORT = "CONVOY_READY_PORT"
"""Variable with the port on which the launcher responds to the kubelet's probes. Only pods of a serving
engine have it.
"""
ENV_DRAIN_SECONDS = "CONVOY_DRAIN_SECONDS"
"""Variable with the seconds that requests in flight may take after a serving rank has stopped accepting
requests.
"""
ENV_ENDPOINT_LAG_SECONDS = "CONVOY_ENDPOINT_LAG_SECONDS"
"""Variable with the time for which a serving rank still accepts requests after SIGTERM. In this time all
proxies drop the pod's endpoint.
"""
ENV_TERM_DELAY_SECONDS = "CONVOY_TERM_DELAY_SECONDS"
"""Variable with the time for which the launcher holds back SIGTERM from its ranks when the pod ends. In this
time all proxies drop the pod's endpoint, and slot 0 finishes its requests before the other slots end. Only
pods of a ServingJob's role without an engine have it.
"""
ENV_STALL_SECONDS = "CONVOY_STALL_SECONDS"
"""Variable with the time without a heartbeat after which a serving rank is no longer ready."""
ENV_MODEL_PATH = "CONVOY_MODEL_PATH"
"""Variable with the folder of the model that a serving rank loads. It is absent if the engine brings its own
model.
"""
ENV_AUTH_TOKEN_FILE = "CONVOY_AUTH_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a token
"""Variable with the file that holds the bearer token of requests. It is absent if requests need no token."""
ENV_ADMIN_SOCKET = "CONVOY_ADMIN_SOCKET"
"""Variable with the path of the Unix socket on which a serving rank offers its admin routes."""
ENV_WARM = "CONVOY_WARM"
"""Variable that is `false` if `recovery.warm` is false. It is absent if `recovery.warm` is true, so that
running pods without the variable need not be replaced.
"""

CSI_DRIVER = "agent.convoy.dev"
HUB_AUDIENCE = "convoy-hub"
HUB_SERVER_NAME = "hub.convoy.dev"
LEASE_NAME = "convoy-operator"
CA_SECRET = "convoy-ca"  # noqa: S105 - the name of a Secret, not its content
CA_CONFIG_MAP = "convoy-ca"

MOUNT_PATH = "/var/run/convoy"
"""Mount path of the agent's CSI volume in a worker pod."""
MEMBERS_FILE = "members.json"
"""Name of the file with the addresses of the process group's pods, in the folder of the agent's volume."""
NOTICE_FILE = "notice.json"
"""Name of the file with the notice about the pod's node, in the folder of the agent's volume."""
MODEL_PATH = "/var/run/convoy-model"
"""Mount path of the volume with the model in a serving pod. For a generation in a CheckpointStore, it is a
CSI volume that the node's agent fills.
"""
VOLUME_CONTENT = "convoy.dev/content"
"""Attribute of a CSI volume that says what the volume shows. It is absent for the pod's socket."""
MODEL_CONTENT = "model"
"""Value of the attribute for a volume that shows the pod's model."""
AUTH_PATH = "/var/run/convoy-auth"
"""Mount path of the Secret with the bearer token in a serving pod."""
HOME_PATH = "/var/run/convoy-home"
"""Mount path of a worker pod's empty volume for a home and temporary files."""
STORES_PATH = "/var/lib/convoy/stores"
"""Folder in an agent's pod. It has one mount for each claim in agent.storeVolumes, with the name of the
claim.
"""


_AGENTS = ".agents.convoy.dev"
_LONGEST_SERVER_NAME = 253
"""Maximum number of characters of a DNS name. OpenSSL and BoringSSL refuse a longer server name."""


def agent_server_name(node: str) -> str:
    """Return the server name for connections to a node's agent. Clients request this name in the TLS
    handshake.
    """
    name = f"{node}{_AGENTS}"
    if len(name) <= _LONGEST_SERVER_NAME:
        return name
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.digest{_AGENTS}.internal"


def agent_names(node: str) -> list[str]:
    """Return the names in the certificate of a node's agent. An agent identifies its caller by the first
    name.
    """
    return list(dict.fromkeys((f"{node}{_AGENTS}", agent_server_name(node))))


class ConditionType:
    """Condition types of all kinds. A type without a docstring is a condition of TrainingJob."""

    VALID = "Valid"
    SCHEDULED = "Scheduled"
    ADMITTED = "Admitted"
    """Condition of TrainingJob: the job's queue has admitted it. Absent without a queue."""
    GANG_SCHEDULED = "GangScheduled"
    """Condition of TrainingJob: the scheduler has placed all pods of the gang at once. Absent without a gang
    scheduler.
    """
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CHECKPOINTING = "Checkpointing"
    """Condition of TrainingJob. Absent if the job has no spec.checkpoint.tiers."""
    STRAGGLER_DETECTED = "StragglerDetected"
    """Condition of TrainingJob and ServingJob. Absent until the ranks of the incarnation have reported steps,
    or while no replica is slow against its peers.
    """
    METRICS_DROPPED = "MetricsDropped"
    """Condition of TrainingJob. Absent if Convoy keeps all metrics that the ranks report."""
    ADVICE = "Advice"
    """Condition of TrainingJob and ServingJob: it violates a rule of advice of severity Warning. Absent
    without spec.lint.
    """
    TRACE_RECORDED = "TraceRecorded"
    """Condition of TrainingJob: the files of its newest recording are in the store. Absent without
    spec.trace.
    """
    INDEPENDENT_READY = "IndependentReady"
    """Condition of TrainingJob: enough pods of its Independent roles run. Absent without such a role."""
    RESULT_REFUSED = "ResultRefused"
    """Condition of TrainingJob. Absent unless the job left a result that cannot be stored."""
    AVAILABLE = "Available"
    """Condition of ServingJob: each role has as many ready replicas as its rollout settings demand."""
    PROGRESSING = "Progressing"
    """Condition of ServingJob: the replicas run the revision that the spec defines, or roll to it."""
    DEGRADED = "Degraded"
    """Condition of ServingJob: a replica is faulty."""
    SLO_MET = "SLOMet"
    """Condition of ServingJob: the replicas meet `spec.slo`. Absent without `spec.slo`."""
    ABLE_TO_SCALE = "AbleToScale"
    """Condition of ServingJob: its autoscaler may change the number of replicas. Absent unless a role has
    `scaling` with mode Convoy.
    """
    SCALING_ACTIVE = "ScalingActive"
    """Condition of ServingJob: the metrics give its autoscaler a number of replicas."""
    SCALING_LIMITED = "ScalingLimited"
    """Condition of ServingJob: a limit keeps the number of replicas from the one that the metrics ask for."""
    MODEL_READY = "ModelReady"
    """Condition of ServingJob: the model exists and may be read. Absent without `spec.model`."""
    SPOT_POOL_READY = "SpotPoolReady"
    """Condition of TrainingJob: its SpotPools grant all pods that its roles want. Absent without such a role.
    """
    PRICE_KNOWN = "PriceKnown"
    """Condition of SpotPool: its spot price is known and not too old."""
    WITHIN_BUDGET = "WithinBudget"
    """Condition of SpotPool: no budget limits its jobs."""
    SPOT_AVAILABLE = "SpotAvailable"
    """Condition of SpotPool: pods are placed on spot nodes, and do not wait for one."""
    NOTICES_RELIABLE = "NoticesReliable"
    """Condition of SpotPool: the agents read the metadata service, and no notice about a present node has
    proved wrong.
    """
    READY = "Ready"
    """Condition of Engine, CheckpointStore and SpotPool. An Engine is ready if jobs may name it. A
    CheckpointStore is ready if jobs can commit checkpoints to it. A SpotPool is ready if it has nodes and
    may spend money.
    """
    REGISTERED = "Registered"
    """Condition of Experiment: the store has the plan. No run starts earlier."""
    PLAN_KEPT = "PlanKept"
    """Condition of Experiment: all runs used the images of the plan. Absent before the registration."""
    STOPPED_EARLY = "StoppedEarly"
    """Condition of Experiment: it stopped before all blocks had ended. Absent otherwise."""
    QUALIFIED = "Qualified"
    """Condition of NodeHealth: the hardware has passed a valid sweep, and there is no evidence against the
    hardware.
    """
    ACTING = "Acting"
    """Condition of NodeHealth: the action that the node needs may be taken. If it is False, its reason
    names the budget that stops the action.
    """
