"""Times in seconds that the agents, the operator and the simulator must agree on.

Each time is defined once. A time that must exceed another time is computed from that time. The operator's
settings and the simulator's latencies take their defaults from here.
"""

from __future__ import annotations

HEARTBEAT_SECONDS = 1.0
"""Seconds between two heartbeats of an agent."""
REPORT_SECONDS = 1.0
"""Minimum seconds between two progress reports of an agent about the same pod."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the operator for silent agents."""
SILENT_SECONDS = 5.0
"""Seconds of silence after which an agent counts as absent: five heartbeats. The operator's setting is
`CONVOY_AGENT_SILENT_SECONDS`.
"""
PROBE_AFTER_SECONDS = 3.0
"""Seconds of silence after which the operator starts to probe the node. The first probes must have ended
when the agent counts as absent.
"""
GRACE_SECONDS = 10.0
"""Seconds that a new leader gives the agents to dial before it judges any of them."""
UNREADY_SECONDS = 15.0
"""Seconds of silence after which a node that still replies loses its agent-ready label. An agent may
announce an absence of the same length; a restart of the agent takes less.
"""
PROBE_SECONDS = 1.0
"""Seconds between two probes of a node whose agent is silent."""
DETECTION_MARGIN_SECONDS = HEARTBEAT_SECONDS + PROBE_SECONDS
"""Maximum seconds by which the loss of a node is detected later than its agent's limit of silence. The last
heartbeat may be one interval old when the node dies, and the probe that detects the loss may be another
interval late.
"""
KUBELET_LEASE_SECONDS = 10.0
"""Seconds between two renewals of a kubelet's Lease (Kubernetes: a quarter of nodeLeaseDurationSeconds)."""
STOP_SECONDS = 4.0
"""Maximum seconds between an agent's decision to stop a Strict job and the end of its ranks. They cover the
agent's poll, the launcher's kill, and the drift between two clocks.
"""
HOLD_SECONDS = 5.0
"""Seconds for which a hub keeps a dialled agent waiting while there is no leader."""
WELCOME_SECONDS = HOLD_SECONDS + 3.0
"""Seconds an agent waits for the hub's Welcome or Redirect."""


def verdict_seconds(silent_seconds: float) -> float:
    """Return the maximum seconds until the operator detects the loss of a node, counted from the first
    error that the loss causes.

    `silent_seconds`: seconds of silence after which the operator counts an agent as absent.
    """
    return silent_seconds + DETECTION_MARGIN_SECONDS
