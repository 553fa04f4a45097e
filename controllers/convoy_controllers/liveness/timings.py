"""Seconds that agents, operator and simulator must agree on.

Each is defined once. A wait that must exceed another is computed from it. The operator's settings and the
simulator's latencies take their defaults from here.
"""

from __future__ import annotations

HEARTBEAT_SECONDS = 1.0
"""Seconds between two heartbeats of an agent."""
REPORT_SECONDS = 1.0
"""Seconds for which an agent gathers progress before it reports a pod again."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the operator for silent agents."""
SILENT_SECONDS = 5.0
"""Silence after which an agent counts as absent: five heartbeats. The operator's setting is
`CONVOY_AGENT_SILENT_SECONDS`."""
PROBE_AFTER_SECONDS = 3.0
"""Silence after which the operator starts to probe the node: the first probes must have ended when the
agent counts as absent.
"""
GRACE_SECONDS = 10.0
"""Seconds that a new leader gives agents to dial before it judges any of them."""
UNREADY_SECONDS = 15.0
"""Silence after which a node that replies loses its agent-ready label. Also the absence that an agent may
announce: longer than an agent's restart.
"""
PROBE_SECONDS = 1.0
"""Seconds between two probes of a quiet node."""
DETECTION_MARGIN_SECONDS = HEARTBEAT_SECONDS + PROBE_SECONDS
"""Seconds between an agent's silence limit and the detection of its node's loss, at most. The last
heartbeat may be one interval old when the node dies, and the probe that finds it dead may be another
interval late.
"""
KUBELET_LEASE_SECONDS = 10.0
"""Seconds between two renewals of a kubelet's Lease (Kubernetes: a quarter of nodeLeaseDurationSeconds)."""
STOP_SECONDS = 4.0
"""Seconds between an agent's decision to stop a Strict job and the end of its ranks: the agent's poll, the
launcher's kill, and the drift between two clocks.
"""
HOLD_SECONDS = 5.0
"""Seconds for which a hub keeps a dialled agent waiting while there is no leader."""
WELCOME_SECONDS = HOLD_SECONDS + 3.0
"""Seconds an agent waits for the hub's Welcome or Redirect."""


def verdict_seconds(silent_seconds: float) -> float:
    """Return the seconds after an error within which the loss of a node becomes known.

    `silent_seconds`: the silence after which the operator counts an agent as absent.
    """
    return silent_seconds + DETECTION_MARGIN_SECONDS
