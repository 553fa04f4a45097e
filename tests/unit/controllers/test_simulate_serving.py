"""Tests of ServingJobs in the simulated cluster: rollouts and faults, as clients see them."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.simulate.job_kind import JobResult
from convoy_controllers.simulate.replay import History, replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_controllers.simulate.serving.monitor import ServingResult
from convoy_controllers.simulate.serving.requests import Cause, Outcome

ROLLOUT = {"maxSurge": 1, "maxUnavailable": 0}


def roles(tokens: int, size: int = 1) -> list[dict[str, Any]]:
    """Return the role `server`. Another number of tokens makes another revision."""
    return [{"name": "server", "groupSize": size, "engine": {"name": "lm", "params": {"tokens": tokens}}}]


def scenario(*events: dict[str, Any], until: float = 130, **more: Any) -> Scenario:
    """Return a scenario with a job of three replicas. `more` may have `spec`, `program`, `rate`, `seed` and
    `nodes`.
    """
    spec = {"replicas": 3, "roles": roles(1), "rollout": ROLLOUT, **more.get("spec", {})}
    job = {"kind": "ServingJob", "metadata": {"name": "llm"}, "spec": spec}
    program = {"loadSeconds": 8, "serviceSeconds": 0.2, **more.get("program", {})}
    return Scenario.model_validate(
        {
            "seed": more.get("seed", 0),
            "nodes": [{"name": f"node-{number}", "capacity": 2} for number in range(more.get("nodes", 3))],
            "jobs": [{"job": job, "program": program}],
            "traffic": [{"job": "llm", "from": 30, "to": until - 5, "rate": more.get("rate", 10)}],
            "events": list(events),
            "until": until,
        }
    )


def play(*events: dict[str, Any], **more: Any) -> tuple[History, ServingResult]:
    """Play a scenario. Return its history and the job's result."""
    history = replay(scenario(*events, **more))
    result: JobResult = history.results[0]
    assert isinstance(result, ServingResult)
    return history, result


def at(seconds: float, action: str, **fields: Any) -> dict[str, Any]:
    """Return an event."""
    return {"at": seconds, "do": action, **fields}


EDIT = at(60, "edit", job="llm", spec={"roles": roles(2)})


def test_rollout_loses_no_request_and_leaves_all_replicas() -> None:
    _, result = play(EDIT)
    outcomes = result.log.outcomes
    assert outcomes[Outcome.OK] == result.log.total > 900 and not result.left
    first, second = result.rollouts
    assert (first.result, second.result) == ("complete", "complete")
    assert second.fewest == second.floor == 3


@pytest.mark.parametrize(
    ("fault", "lost", "cause"),
    [
        (at(61, "killRank", pod="llm-server-0-0"), True, Cause.REFUSED),
        (at(60, "hangRank", pod="llm-server-0-0"), True, None),
        (at(60, "deletePod", pod="llm-server-0-0"), False, None),
        (at(60, "killNode", node="node-2"), True, Cause.UNREACHABLE),
        (at(60, "drainNode", node="node-2"), False, None),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
def test_fault_costs_only_the_requests_at_the_replica(
    fault: dict[str, Any], lost: bool, cause: Cause | None
) -> None:
    _, result = play(fault, until=140, program={"serviceSeconds": 0.5})
    log = result.log
    assert bool(log.outcomes[Outcome.LOST]) is lost
    assert set(log.causes) == ({cause} if cause else set())
    assert log.outcomes[Outcome.OK] > 0.9 * log.total
    assert result.job.status.ready == "3/3" and result.job.status.reason == "RolloutComplete"


def test_replica_that_restarts_in_place_counts_as_available_only_after_a_probe() -> None:
    """The kubelet reports the restarted pod as ready for up to 2 s more. A rollout must not count on it: the
    invariants of the simulation check each deletion. The conditions must not change back and forth.
    """
    play(EDIT, at(69.38, "killRank", pod="llm-server-0-0"), seed=13, rate=2)
    history, _ = play(at(60, "killRank", pod="llm-server-0-0"), until=90, rate=2)
    lines = [line.what.split(",")[0] for line in history.entries if line.at > 60]
    assert lines == ["llm: TooFewReplicas", "llm: RolloutComplete"]
