"""What an agent writes down of a pod, so that its successor can go on without the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_agents.pods import assignment
from convoy_agents.pods.state import Committed, PodState
from convoy_controllers.checkpoint.generation import Generation


def dump(state: PodState) -> dict[str, Any]:
    """Plain data: the assignment, the latest incarnation heard of, the newest commit."""
    return {
        "assignment": state.assignment.to_json() if state.assignment else None,
        "portWanted": state.port_wanted,
        "committed": [*state.committed.generation, state.committed.time_ms] if state.committed else None,
    }


def load(uid: str, data: Mapping[str, Any]) -> PodState:
    """The state a new agent starts from. ValueError, TypeError or KeyError for data `dump` did not write."""
    known = assignment.from_json(data["assignment"]) if data.get("assignment") else None
    commit = data.get("committed")
    return PodState(
        uid=uid,
        # The launcher says at its hello if it has not heard of it.
        told=known.incarnation if known else 0,
        assignment=known,
        port_wanted=int(data.get("portWanted", 0)),
        committed=Committed(Generation(int(commit[0]), int(commit[1])), int(commit[2])) if commit else None,
    )
