"""The pod state that an agent writes to disk, so that the next agent can continue without the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_agents.pods import assignment
from convoy_agents.pods.state import Committed, PodState
from convoy_controllers.checkpoint.generation import Generation, Tier


def dump(state: PodState) -> dict[str, Any]:
    """Return plain data: the assignment, the latest incarnation seen, and the newest commits."""
    return {
        "assignment": state.assignment.to_json() if state.assignment else None,
        "portWanted": state.port_wanted,
        "committed": {
            tier.value: [*commit.generation, commit.time_ms] for tier, commit in state.committed.items()
        },
    }


def load(uid: str, data: Mapping[str, Any]) -> PodState:
    """Return the initial state of a new agent. ValueError, TypeError or KeyError for data that `dump` did
    not write.
    """
    known = assignment.from_json(data["assignment"]) if data.get("assignment") else None
    return PodState(
        uid=uid,
        # The launcher's hello corrects this if the launcher does not know the assignment.
        launcher_incarnation=known.incarnation if known else 0,
        assignment=known,
        port_wanted=int(data.get("portWanted", 0)),
        committed={
            Tier(tier): Committed(Generation(int(incarnation), int(step)), int(at))
            for tier, (incarnation, step, at) in (data.get("committed") or {}).items()
        },
    )
