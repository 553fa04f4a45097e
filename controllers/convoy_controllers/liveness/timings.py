"""Seconds that agents, operator and simulator must agree on.

Each is stated once. A wait that must exceed another is computed from it. The operator's settings and the
simulator's latencies take their defaults from here.
"""

from __future__ import annotations

HEARTBEAT_SECONDS = 1.0
"""Seconds between two heartbeats of an agent."""
REPORT_SECONDS = 1.0
"""Seconds for which an agent gathers progress before it reports a pod again."""
POLL_SECONDS = 0.2
"""Seconds between two polls of the operator for agents that have fallen silent."""
SILENT_SECONDS = 5.0
"""Silence after which an agent counts as absent: five heartbeats. The operator's setting is
`CONVOY_AGENT_SILENT_SECONDS`."""
PROBE_AFTER_SECONDS = 3.0
"""Silence after which the operator begins to probe the node: the first probes must have ended when the agent
counts as absent."""
GRACE_SECONDS = 10.0
"""Seconds that a new leader gives agents to dial before it judges any of them."""
UNREADY_SECONDS = 15.0
"""Silence after which a node that answers loses its agent-ready label, and the absence that an agent may
announce: longer than an agent's restart."""
PROBE_SECONDS = 1.0
"""Seconds between two probes of a quiet node."""
DETECTION_MARGIN_SECONDS = HEARTBEAT_SECONDS + PROBE_SECONDS
"""Seconds beyond an agent's silence until the loss of its node is known: the last heartbeat may be as old as
one interval when the node dies, and the probe that finds it dead may be as late as another."""
KUBELET_LEASE_SECONDS = 10.0
"""Seconds between two renewals of a kubelet's Lease (Kubernetes: a quarter of nodeLeaseDurationSeconds)."""
STOP_SECONDS = 4.0
"""Seconds between an agent's decision to stop a Strict job and the end of its ranks: the agent's poll, the
launcher's kill, and the difference between two clocks' pace."""
HOLD_SECONDS = 5.0
"""Seconds for which a hub keeps an agent that dialled while nobody leads."""
WELCOME_SECONDS = HOLD_SECONDS + 3.0
"""Seconds an agent waits for the hub's Welcome or Redirect."""


def verdict_seconds(silent_seconds: float) -> float:
    """Return the seconds after an error within which the loss of a node may come to be known.

    `silent_seconds`: the silence after which the operator counts an agent as absent.
    """
    return silent_seconds + DETECTION_MARGIN_SECONDS
