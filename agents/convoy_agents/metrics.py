"""All metrics of the agent. Label values come from small fixed sets, so no label names a pod, job or rank."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

from convoy_agents.guard.sweep.finding import Outcome
from convoy_agents.pods import tally
from convoy_controllers.checkpoint.commit import Verdict

M = TypeVar("M", bound=MetricWrapperBase)

# Disable the `_created` series, because they would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_MOMENTS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_STARTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TRANSFERS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
OF_PODS = ("assignment", "pick_port", "peer_moved", "endpoints", "group_members", "shutdown")
"""Kinds of commands about a pod that the pod's session handles."""
_OF_NODE = (
    "deliver_model",
    "drop_job",
    "store",
    "sweep_order",
    "sweep_cancel",
    "sweep_received",
    "inject_fault",
    "undo_fault",
    "spot_node",
)


def _with_series(metric: M, *values: Iterable[str]) -> M:
    """Create a series for every combination of label values, and return the metric.

    Each counter then starts at 0. Without the 0, rate() would miss the first error.
    """
    for chosen in itertools.product(*values):
        metric.labels(*chosen)
    return metric


BUILD = Gauge(
    "convoy_agent_build_info", "1, with the agent's version as a label.", ["version"], registry=REGISTRY
)

# Metrics of the pods of this node.

PODS = Gauge("convoy_agent_pods", "Pods whose volume is mounted on this node.", registry=REGISTRY)
LAUNCHERS = Gauge("convoy_agent_launchers", "Pods whose launcher is connected.", registry=REGISTRY)
RANKS = _with_series(
    Gauge(
        "convoy_agent_ranks",
        "Ranks of this node by state, as their launchers report it.",
        ["state"],
        registry=REGISTRY,
    ),
    tally.STATES,
)
RANK_START_SECONDS = _with_series(
    Histogram(
        "convoy_agent_rank_start_seconds",
        "Seconds from the order to start a rank to its process, in a new pod or in one kept by a restart.",
        ["start"],
        buckets=_STARTS,
        registry=REGISTRY,
    ),
    tally.STARTS,
)
RANK_EXITS = _with_series(
    Counter(
        "convoy_agent_rank_exits",
        "Ranks that ended on this node, by kind of end.",
        ["kind"],
        registry=REGISTRY,
    ),
    tally.EXITS,
)
RESTARTS_IN_PLACE = Counter(
    "convoy_agent_restarts_in_place",
    "Restarts of a pod's ranks without replacing the pod.",
    registry=REGISTRY,
)
POD_PROTOCOL_ERRORS = _with_series(
    Counter(
        "convoy_agent_pod_protocol_errors",
        "Connections closed because the pod broke the protocol or a limit.",
        ["kind"],
        registry=REGISTRY,
    ),
    ["connections", "hello", "frame", "message"],
)
FENCED = Counter(
    "convoy_agent_fenced", "Strict jobs stopped on this node because it was isolated.", registry=REGISTRY
)

FAULTS = _with_series(
    Counter(
        "convoy_agent_faults", "Faults that the operator ordered, by result.", ["result"], registry=REGISTRY
    ),
    ["injected", "undone", "refused", "undo_failed"],
)
FAULTS_ACTIVE = Gauge("convoy_agent_faults_active", "Faults that are not undone.", registry=REGISTRY)
FAULTS_OVERDUE = Gauge(
    "convoy_agent_faults_overdue",
    "Faults that the agent could not undo yet. It tries again.",
    registry=REGISTRY,
)

# Metrics of the session with the hub, and of calls from other agents.

SESSION_UP = Gauge(
    "convoy_agent_session_up", "1 while a session with the hub is established.", registry=REGISTRY
)
SESSIONS = _with_series(
    Counter(
        "convoy_agent_sessions",
        "Attempts to hold a session with the hub, by result.",
        ["result"],
        registry=REGISTRY,
    ),
    ["ended", "redirected", "failed"],
)
HEARTBEAT_SECONDS = Histogram(
    "convoy_agent_heartbeat_seconds",
    "Seconds from a heartbeat to the hub's reply, which is queued behind the hub's commands.",
    buckets=_MOMENTS,
    registry=REGISTRY,
)
REPORTS = Counter("convoy_agent_reports", "Pod reports sent to the hub.", registry=REGISTRY)
COMMANDS = _with_series(
    Counter(
        "convoy_agent_commands",
        "Commands from the hub, by kind and result.",
        ["kind", "result"],
        registry=REGISTRY,
    ),
    (*OF_PODS, *_OF_NODE),
    ["done", "failed"],
)
_with_series(COMMANDS, OF_PODS, ["unknown_pod", "invalid"])
ENROLMENTS = _with_series(
    Counter(
        "convoy_agent_enrolments",
        "Attempts to obtain a certificate, by result.",
        ["result"],
        registry=REGISTRY,
    ),
    ["done", "failed"],
)
CERTIFICATE_EXPIRY = Gauge(
    "convoy_agent_certificate_expiry_timestamp_seconds",
    "Expiry of the current certificate (Unix seconds); 0 before the first certificate.",
    registry=REGISTRY,
)
TELEMETRY_DROPPED = Counter(
    "convoy_agent_telemetry_windows_dropped",
    "Step windows dropped from the full buffer, the oldest first, while the hub was unreachable.",
    registry=REGISTRY,
)
PEER_REFUSED = Counter(
    "convoy_agent_peer_calls_refused",
    "Calls from other agents refused because of a limit on calls, or because no request arrived.",
    registry=REGISTRY,
)

# Metrics of the CSI driver.

CSI_CALLS = _with_series(
    Counter(
        "convoy_agent_csi_calls",
        "CSI calls from the kubelet, by method and status code.",
        ["method", "code"],
        registry=REGISTRY,
    ),
    ["NodePublishVolume", "NodeUnpublishVolume"],
    ["OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "INTERNAL"],
)
CSI_SECONDS = _with_series(
    Histogram(
        "convoy_agent_csi_call_seconds",
        "Seconds per CSI call from the kubelet.",
        ["method"],
        buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
        registry=REGISTRY,
    ),
    ["NodePublishVolume", "NodeUnpublishVolume"],
)
REGISTERED = Gauge(
    "convoy_agent_csi_registered", "1 once the kubelet has registered the driver.", registry=REGISTRY
)
STALE_FOLDERS = Counter(
    "convoy_agent_stale_folders",
    "Pod folders removed because they were no longer mounted.",
    registry=REGISTRY,
)

TRACES = _with_series(
    Counter(
        "convoy_agent_traces",
        "Traces of ranks that were sent to a store, by result.",
        ["result"],
        registry=REGISTRY,
    ),
    ["stored", "failed"],
)

# Metrics of checkpoints.

CHECKPOINT_BYTES = Gauge(
    "convoy_agent_checkpoint_memory_bytes",
    "Bytes of memory that jobs use for checkpoints.",
    registry=REGISTRY,
)
CHECKPOINT_LIMIT = Gauge(
    "convoy_agent_checkpoint_memory_limit_bytes",
    "Maximum bytes of memory for the checkpoints of all jobs.",
    registry=REGISTRY,
)
COMMITS = _with_series(
    Counter(
        "convoy_agent_commits",
        "Commits requested by this node's pods at any tier, by verdict.",
        ["verdict"],
        registry=REGISTRY,
    ),
    [one.value for one in Verdict],
)
COMMIT_SECONDS = Histogram(
    "convoy_agent_commit_seconds",
    "Seconds from a pod's first request for a commit to the verdict committed.",
    buckets=(0.01, 0.05, 0.2, 1, 5, 20, 60),
    registry=REGISTRY,
)
COPY_SECONDS = Histogram(
    "convoy_agent_checkpoint_copy_seconds",
    "Seconds from the start of copying a pod's part of a checkpoint until all copies exist.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
COPIED_BYTES = _with_series(
    Counter(
        "convoy_agent_checkpoint_copied_bytes",
        "Bytes of shards sent to other nodes (sent) and fetched from them (taken).",
        ["direction"],
        registry=REGISTRY,
    ),
    ["sent", "taken"],
)
TRAVELLED_BYTES = _with_series(
    Counter(
        "convoy_agent_checkpoint_travelled_bytes",
        "Bytes of chunks for a store or other nodes: before encoding (raw) and on the network (sent).",
        ["path", "bytes"],
        registry=REGISTRY,
    ),
    ["store", "peer"],
    ["raw", "sent"],
)
UPLOADS = _with_series(
    Counter(
        "convoy_agent_checkpoint_uploads",
        "Uploads of pods' parts of checkpoints to a store, by result.",
        ["result"],
        registry=REGISTRY,
    ),
    ["stored", "refused", "superseded", "failed"],
)
UPLOAD_SECONDS = Histogram(
    "convoy_agent_checkpoint_upload_seconds",
    "Seconds per successful upload, up to the commit of the whole checkpoint in the store.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
STORE_ERRORS = Counter(
    "convoy_agent_checkpoint_store_errors",
    "Failed uploads of a part of a checkpoint to a store; each is retried.",
    registry=REGISTRY,
)
RESTORES = _with_series(
    Counter(
        "convoy_agent_checkpoint_restores",
        "Restores by outcome: checkpoint found, none ever made (fresh), all lost, or attempt failed.",
        ["outcome"],
        registry=REGISTRY,
    ),
    ["found", "fresh", "lost", "failed"],
)
RESTORE_SECONDS = Histogram(
    "convoy_agent_checkpoint_restore_seconds",
    "Seconds from the request to restore until the pod's last rank has read its checkpoint.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
DAMAGED = Counter("convoy_agent_checkpoint_damaged", "Damaged shards found in memory.", registry=REGISTRY)
REPLACED = Counter(
    "convoy_agent_checkpoint_replaced",
    "Damaged shards replaced by another node's copy.",
    registry=REGISTRY,
)
SCRUBBED_BYTES = Counter(
    "convoy_agent_checkpoint_scrubbed_bytes",
    "Bytes of checkpoints in memory whose integrity was checked.",
    registry=REGISTRY,
)

# Metrics of serving pods.

SCRAPES = _with_series(
    Counter(
        "convoy_agent_scrapes",
        "Reads of the metrics of serving pods with spec.roles[].metrics, by result.",
        ["result"],
        registry=REGISTRY,
    ),
    ["done", "failed"],
)

MODEL_BYTES = Gauge("convoy_agent_model_bytes", "Size of all models on this node's disk.", registry=REGISTRY)
MODEL_DOWNLOADS = _with_series(
    Counter(
        "convoy_agent_model_downloads",
        "Downloads of models from stores, by result. Pods of this node share a download.",
        ["result"],
        registry=REGISTRY,
    ),
    ["done", "failed"],
)

# Metrics of notices.

NOTICE_POLLS = _with_series(
    Counter(
        "convoy_agent_notice_polls",
        "Polls of the metadata service of the node's SpotPool, by result. A poll with a notice is also done.",
        ["result"],
        registry=REGISTRY,
    ),
    ["done", "noticed", "failed", "refused"],
)

# Metrics of health sweeps.

SWEEPS = _with_series(
    Counter(
        "convoy_agent_sweeps", "Health sweeps of this node, by final state.", ["state"], registry=REGISTRY
    ),
    ["done", "cancelled", "refused"],
)
PROBES = _with_series(
    Counter("convoy_agent_probes", "Probes of health sweeps, by outcome.", ["outcome"], registry=REGISTRY),
    [*Outcome],
)


def travelled(path: str, length: int, size: int) -> None:
    """Count the bytes of one chunk. `path` is "store" or "peer", `length` counts bytes before encoding, and
    `size` counts bytes on the network.
    """
    TRAVELLED_BYTES.labels(path, "raw").inc(length)
    TRAVELLED_BYTES.labels(path, "sent").inc(size)
