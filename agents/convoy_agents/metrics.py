"""Every metric of the agent. Labels take few values, known beforehand: no pod, job or rank among them."""

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

# Half of all series would be times at which others began.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_MOMENTS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_STARTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TRANSFERS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_OF_PODS = ("assignment", "pick_port", "peer_moved", "shutdown")
_OF_NODE = ("drop_job", "store", "sweep_order", "sweep_cancel", "sweep_received")


def _with_series(metric: M, *values: Iterable[str]) -> M:
    """With a series for each of its labels' values: a counter that first appears with its first error hides
    that error from rate().
    """
    for chosen in itertools.product(*values):
        metric.labels(*chosen)
    return metric


BUILD = Gauge(
    "convoy_agent_build_info", "1, with the agent's version as a label.", ["version"], registry=REGISTRY
)

# The pods of this node.

PODS = Gauge("convoy_agent_pods", "Pods whose volume is mounted on this node.", registry=REGISTRY)
LAUNCHERS = Gauge("convoy_agent_launchers", "Pods whose launcher is connected.", registry=REGISTRY)
RANKS = _with_series(
    Gauge(
        "convoy_agent_ranks",
        "Ranks of this node by state, as their launchers told.",
        ["state"],
        registry=REGISTRY,
    ),
    tally.STATES,
)
RANK_START_SECONDS = _with_series(
    Histogram(
        "convoy_agent_rank_start_seconds",
        "From the order to start a rank to its process, in a fresh pod or in one kept by a restart.",
        ["start"],
        buckets=_STARTS,
        registry=REGISTRY,
    ),
    tally.STARTS,
)
RANK_EXITS = _with_series(
    Counter("convoy_agent_rank_exits", "Ranks that ended on this node, by how.", ["kind"], registry=REGISTRY),
    tally.EXITS,
)
RESTARTS_IN_PLACE = Counter(
    "convoy_agent_restarts_in_place",
    "Pods whose ranks were started anew without replacing the pod.",
    registry=REGISTRY,
)
POD_PROTOCOL_ERRORS = _with_series(
    Counter(
        "convoy_agent_pod_protocol_errors",
        "Connections of pods ended for cause.",
        ["kind"],
        registry=REGISTRY,
    ),
    ["connections", "hello", "frame", "message"],
)
FENCED = Counter(
    "convoy_agent_fenced", "Strict jobs stopped on this node because it was cut off.", registry=REGISTRY
)

# The hub.

SESSION_UP = Gauge("convoy_agent_session_up", "1 while the hub's session is established.", registry=REGISTRY)
SESSIONS = _with_series(
    Counter(
        "convoy_agent_sessions", "Tries to hold a session, by how they ended.", ["result"], registry=REGISTRY
    ),
    ["ended", "redirected", "failed"],
)
HEARTBEAT_SECONDS = Histogram(
    "convoy_agent_heartbeat_seconds",
    "From a heartbeat to the hub's answer, which takes the way of all its commands.",
    buckets=_MOMENTS,
    registry=REGISTRY,
)
REPORTS = Counter("convoy_agent_reports", "Pod reports sent to the hub.", registry=REGISTRY)
COMMANDS = _with_series(
    Counter(
        "convoy_agent_commands",
        "Commands of the hub, by kind and result.",
        ["kind", "result"],
        registry=REGISTRY,
    ),
    (*_OF_PODS, *_OF_NODE),
    ["done", "failed"],
)
_with_series(COMMANDS, _OF_PODS, ["unknown_pod", "invalid"])
ENROLMENTS = _with_series(
    Counter("convoy_agent_enrolments", "Tries to buy a certificate.", ["result"], registry=REGISTRY),
    ["done", "failed"],
)
CERTIFICATE_EXPIRY = Gauge(
    "convoy_agent_certificate_expiry_timestamp_seconds",
    "When the current certificate ends; 0 before the first.",
    registry=REGISTRY,
)
TELEMETRY_DROPPED = Counter(
    "convoy_agent_telemetry_windows_dropped",
    "Windows of steps that made room for later ones while the hub was away.",
    registry=REGISTRY,
)
PEER_REFUSED = Counter(
    "convoy_agent_peer_calls_refused",
    "Calls of other agents that were one too many of their node, or whose request did not come.",
    registry=REGISTRY,
)

# The kubelet.

CSI_CALLS = _with_series(
    Counter("convoy_agent_csi_calls", "Calls of the kubelet.", ["method", "code"], registry=REGISTRY),
    ["NodePublishVolume", "NodeUnpublishVolume"],
    ["OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "INTERNAL"],
)
CSI_SECONDS = _with_series(
    Histogram(
        "convoy_agent_csi_call_seconds",
        "Time of a kubelet's call.",
        ["method"],
        buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
        registry=REGISTRY,
    ),
    ["NodePublishVolume", "NodeUnpublishVolume"],
)
REGISTERED = Gauge(
    "convoy_agent_csi_registered", "1 once the kubelet has accepted the driver.", registry=REGISTRY
)
STALE_FOLDERS = Counter(
    "convoy_agent_stale_folders", "Folders removed because nothing mounted them.", registry=REGISTRY
)

# Checkpoints.

CHECKPOINT_BYTES = Gauge(
    "convoy_agent_checkpoint_memory_bytes", "Memory that jobs have for checkpoints.", registry=REGISTRY
)
CHECKPOINT_LIMIT = Gauge(
    "convoy_agent_checkpoint_memory_limit_bytes",
    "Memory that all jobs together may have for checkpoints.",
    registry=REGISTRY,
)
COMMITS = _with_series(
    Counter(
        "convoy_agent_commits",
        "Commits that this node's pods have asked for, at any tier, by verdict.",
        ["verdict"],
        registry=REGISTRY,
    ),
    [one.value for one in Verdict],
)
COMMIT_SECONDS = Histogram(
    "convoy_agent_commit_seconds",
    "From the first time that a pod asks for a commit to the verdict committed.",
    buckets=(0.01, 0.05, 0.2, 1, 5, 20, 60),
    registry=REGISTRY,
)
COPY_SECONDS = Histogram(
    "convoy_agent_checkpoint_copy_seconds",
    "From the moment that a pod's part of a checkpoint is to be copied until all its copies were made.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
COPIED_BYTES = _with_series(
    Counter(
        "convoy_agent_checkpoint_copied_bytes",
        "Bytes of shards sent to other nodes, and taken from them.",
        ["direction"],
        registry=REGISTRY,
    ),
    ["sent", "taken"],
)
TRAVELLED_BYTES = _with_series(
    Counter(
        "convoy_agent_checkpoint_travelled_bytes",
        "Bytes of chunks that went to a store or to other nodes, and the bytes that were sent for them.",
        ["path", "bytes"],
        registry=REGISTRY,
    ),
    ["store", "peer"],
    ["raw", "sent"],
)
UPLOADS = _with_series(
    Counter(
        "convoy_agent_checkpoint_uploads",
        "A pod's parts of checkpoints that were to be brought to a store, by how that ended.",
        ["result"],
        registry=REGISTRY,
    ),
    ["stored", "refused", "superseded", "failed"],
)
UPLOAD_SECONDS = Histogram(
    "convoy_agent_checkpoint_upload_seconds",
    "Time of those that were stored, up to the commit of the whole checkpoint there.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
STORE_ERRORS = Counter(
    "convoy_agent_checkpoint_store_errors",
    "Times that a store did not take a part of a checkpoint; it is tried again.",
    registry=REGISTRY,
)
RESTORES = _with_series(
    Counter(
        "convoy_agent_checkpoint_restores",
        "What pods go on from: a checkpoint, none was made (fresh), all are lost; failed counts tries.",
        ["outcome"],
        registry=REGISTRY,
    ),
    ["found", "fresh", "lost", "failed"],
)
RESTORE_SECONDS = Histogram(
    "convoy_agent_checkpoint_restore_seconds",
    "From that question to the end of reading by the last rank of the pod, where a checkpoint was found.",
    buckets=_TRANSFERS,
    registry=REGISTRY,
)
DAMAGED = Counter(
    "convoy_agent_checkpoint_damaged", "Shards that were found damaged in memory.", registry=REGISTRY
)
REPLACED = Counter(
    "convoy_agent_checkpoint_replaced",
    "Damaged shards replaced by another node's copy.",
    registry=REGISTRY,
)
SCRUBBED_BYTES = Counter(
    "convoy_agent_checkpoint_scrubbed_bytes", "Bytes of checkpoints in memory looked at.", registry=REGISTRY
)

# Health sweeps.

SWEEPS = _with_series(
    Counter(
        "convoy_agent_sweeps", "Health sweeps of this node, by how they ended.", ["state"], registry=REGISTRY
    ),
    ["done", "cancelled", "refused"],
)
PROBES = _with_series(
    Counter(
        "convoy_agent_probes", "Probes of health sweeps, by how they ended.", ["outcome"], registry=REGISTRY
    ),
    [*Outcome],
)


def travelled(path: str, length: int, size: int) -> None:
    """A chunk of this length went by a path, `store` or `peer`, as so many bytes."""
    TRAVELLED_BYTES.labels(path, "raw").inc(length)
    TRAVELLED_BYTES.labels(path, "sent").inc(size)
