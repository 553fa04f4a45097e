"""Every metric of the agent. Labels take few values, known beforehand: no pod, job or rank among them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

PODS = Gauge("convoy_agent_pods", "Pods whose volume is mounted on this node", registry=REGISTRY)
LAUNCHERS = Gauge("convoy_agent_launchers", "Pods whose launcher is connected", registry=REGISTRY)
SESSION_UP = Gauge("convoy_agent_session_up", "1 while the hub's session is established", registry=REGISTRY)
SESSIONS = Counter(
    "convoy_agent_sessions", "Tries to hold a session, by how they ended", ["result"], registry=REGISTRY
)
REPORTS = Counter("convoy_agent_reports", "Pod reports sent to the hub", registry=REGISTRY)
COMMANDS = Counter(
    "convoy_agent_commands", "Commands of the hub, by kind and result", ["kind", "result"], registry=REGISTRY
)
ENROLMENTS = Counter("convoy_agent_enrolments", "Tries to buy a certificate", ["result"], registry=REGISTRY)
CERTIFICATE_EXPIRY = Gauge(
    "convoy_agent_certificate_expiry_timestamp_seconds",
    "When the current certificate ends; 0 before the first",
    registry=REGISTRY,
)
CSI_CALLS = Counter("convoy_agent_csi_calls", "Calls of the kubelet", ["method", "code"], registry=REGISTRY)
CSI_SECONDS = Histogram(
    "convoy_agent_csi_call_seconds",
    "Time of a kubelet's call",
    ["method"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
REGISTERED = Gauge(
    "convoy_agent_csi_registered", "1 once the kubelet has accepted the driver", registry=REGISTRY
)
STALE_FOLDERS = Counter(
    "convoy_agent_stale_folders", "Folders removed because nothing mounted them", registry=REGISTRY
)
POD_PROTOCOL_ERRORS = Counter(
    "convoy_agent_pod_protocol_errors", "Connections of pods ended for cause", ["kind"], registry=REGISTRY
)
COMMITS = Counter(
    "convoy_agent_commits",
    "Commits that this node's pods have asked for, at any tier, by verdict",
    ["verdict"],
    registry=REGISTRY,
)
FENCED = Counter(
    "convoy_agent_fenced", "Strict jobs stopped on this node because it was cut off", registry=REGISTRY
)
PROBES = Counter(
    "convoy_agent_probes", "Probes of health sweeps, by how they ended", ["outcome"], registry=REGISTRY
)
COMMIT_SECONDS = Histogram(
    "convoy_agent_commit_seconds",
    "From the first time that a pod asks for a commit to the verdict committed",
    buckets=(0.01, 0.05, 0.2, 1, 5, 20, 60),
    registry=REGISTRY,
)
DAMAGED = Counter(
    "convoy_agent_checkpoint_damaged", "Shards that were found damaged in memory", registry=REGISTRY
)
SCRUBBED_BYTES = Counter(
    "convoy_agent_checkpoint_scrubbed_bytes", "Bytes of checkpoints in memory looked at", registry=REGISTRY
)
REPLACED = Counter(
    "convoy_agent_checkpoint_replaced",
    "Damaged shards replaced by another node's copy",
    registry=REGISTRY,
)
CHECKPOINT_BYTES = Gauge(
    "convoy_agent_checkpoint_memory_bytes", "Memory that jobs have for checkpoints", registry=REGISTRY
)
COPIED_BYTES = Counter(
    "convoy_agent_checkpoint_copied_bytes",
    "Bytes of shards sent to other nodes, and taken from them",
    ["direction"],
    registry=REGISTRY,
)
TRAVELLED_BYTES = Counter(
    "convoy_agent_checkpoint_travelled_bytes",
    "Bytes of chunks that went to a store or to other nodes, and the bytes that were sent for them",
    ["path", "bytes"],
    registry=REGISTRY,
)


def travelled(path: str, length: int, size: int) -> None:
    """A chunk of this length went by a path, `store` or `peer`, as so many bytes."""
    TRAVELLED_BYTES.labels(path, "raw").inc(length)
    TRAVELLED_BYTES.labels(path, "sent").inc(size)
