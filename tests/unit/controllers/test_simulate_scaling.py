"""Tests of the autoscaler in the simulated cluster: the replicas follow the load, whatever fails."""

from __future__ import annotations

from typing import Any

from convoy_controllers.simulate.replay import replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_controllers.simulate.serving.monitor import ServingResult
from convoy_controllers.simulate.serving.requests import Outcome

TARGET = {"type": "AverageValue", "averageValue": 2}
METRIC = {"type": "Pods", "pods": {"metric": {"name": "convoy_requests_per_second"}, "target": TARGET}}
SCALING = {
    "maxReplicas": 4,
    "metrics": [METRIC],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
}


def play(*events: dict[str, Any], until: float = 420.0) -> ServingResult:
    """Play a job with a step of load, from 1 to 8 requests per second and back. Return its result."""
    role = {"name": "server", "engine": {"name": "lm"}, "scaling": SCALING}
    rollout = {"maxSurge": 1, "maxUnavailable": 0}
    job = {"kind": "ServingJob", "metadata": {"name": "llm"}, "spec": {"roles": [role], "rollout": rollout}}
    steps = ((30, 90, 1), (90, 240, 8), (240, until - 5, 1))
    traffic = [{"job": "llm", "from": start, "to": end, "rate": rate} for start, end, rate in steps]
    found = replay(
        Scenario.model_validate(
            {
                "seed": 0,
                "nodes": [{"name": f"node-{number}", "capacity": 2} for number in range(3)],
                "jobs": [{"job": job, "program": {"loadSeconds": 4, "serviceSeconds": 0.05}}],
                "traffic": traffic,
                "events": list(events),
                "until": until,
            }
        )
    ).results[0]
    assert isinstance(found, ServingResult)
    return found


def numbers(result: ServingResult) -> list[int]:
    """Return the recorded numbers of replicas, the oldest first."""
    (scaled,) = result.job.status.scaling
    return [one.to_replicas for one in reversed(scaled.decisions)]


def test_the_replicas_follow_a_step_of_load_and_lose_no_request() -> None:
    result = play()
    assert max(numbers(result)) == 4 and numbers(result)[-1] == 1
    assert result.job.status.ready == "1/1"
    assert result.log.outcomes[Outcome.OK] == result.log.total > 1000


def test_a_crash_of_the_operator_removes_no_replica_under_load() -> None:
    result = play({"at": 180.0, "do": "crashOperator"})
    assert numbers(result).count(4) == 1 and numbers(result)[-1] == 1
    assert result.log.outcomes[Outcome.OK] == result.log.total


def test_a_rollout_under_load_keeps_the_number_of_replicas() -> None:
    role = {"name": "server", "engine": {"name": "lm", "params": {"tokens": 2}}, "scaling": SCALING}
    edit = {"at": 160.0, "do": "edit", "job": "llm", "spec": {"roles": [role]}}
    result = play(edit)
    assert max(numbers(result)) == 4 and numbers(result)[-1] == 1
    assert result.rollouts[-1].result == "complete" and result.rollouts[-1].fewest >= 4
    assert result.log.outcomes[Outcome.OK] == result.log.total
