"""The part of a pod's state that the agent writes to disk. After a restart, the next agent can continue
from it without the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from convoy_agents.pods import assignment
from convoy_agents.pods.state import Committed, PodState
from convoy_agents.tracing.order import TraceResult
from convoy_controllers.checkpoint.generation import Generation, Tier


def dump(state: PodState) -> dict[str, Any]:
    """Return the pod's state as plain data: the assignment, the incarnation of the newest port request, the
    results of a trace, and the newest committed generations.
    """
    return {
        "assignment": state.assignment.to_json() if state.assignment else None,
        "portWanted": state.port_wanted,
        "traces": [asdict(one) for one in state.traces.values()],
        "committed": {
            tier.value: [*commit.generation, commit.time_ms] for tier, commit in state.committed.items()
        },
    }


def load(uid: str, data: Mapping[str, Any]) -> PodState:
    """Return the pod's state from the output of `dump`. Raises ValueError, TypeError or KeyError for other
    data.
    """
    known = assignment.from_json(data["assignment"]) if data.get("assignment") else None
    return PodState(
        uid=uid,
        # Assume that the launcher knows the assignment. If it does not, its hello corrects the state.
        launcher_incarnation=known.incarnation if known else 0,
        assignment=known,
        port_wanted=int(data.get("portWanted", 0)),
        traces={
            int(one["rank"]): TraceResult(**{**one, "order": tuple(one["order"])})
            for one in data.get("traces") or []
        },
        committed={
            Tier(tier): Committed(Generation(int(incarnation), int(step)), int(at))
            for tier, (incarnation, step, at) in (data.get("committed") or {}).items()
        },
    )
