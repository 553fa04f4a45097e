"""Tests of scale to zero in the simulated cluster, as clients see it, and random lives of such jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import cases

from convoy_controllers.servingjob import activation
from convoy_controllers.simulate.replay import replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_controllers.simulate.serving import activator
from convoy_controllers.simulate.serving.monitor import ServingResult
from convoy_controllers.simulate.serving.requests import Outcome
from convoy_controllers.simulate.violation import InvariantViolation

NODES = 4
SCALING = {
    "minReplicas": 0,
    "maxReplicas": 3,
    "cooldownSeconds": 20,
    "metrics": [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "convoy_num_requests_waiting"},
                "target": {"type": "AverageValue", "averageValue": 8},
            },
        }
    ],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
}
ROLES = [{"name": "server", "engine": {"name": "lm"}, "scaling": SCALING}]
Traffic = tuple[float, float, float]
"""Start, end and rate of requests."""


def scenario(
    traffic: list[Traffic],
    until: float,
    *events: dict[str, Any],
    seed: int = 0,
    load: float = 5,
    scaling: dict[str, Any] | None = None,
) -> Scenario:
    """Return a scenario with a job that scales to zero. `scaling` replaces fields of `SCALING`."""
    roles = [{**ROLES[0], "scaling": {**SCALING, **(scaling or {})}}]
    job = {
        "kind": "ServingJob",
        "metadata": {"name": "llm"},
        "spec": {"roles": roles, "recovery": {"hangSeconds": 20}},
    }
    return Scenario.model_validate(
        {
            "seed": seed,
            "nodes": [{"name": f"node-{number}", "capacity": 3} for number in range(NODES)],
            "jobs": [{"job": job, "program": {"loadSeconds": load, "serviceSeconds": 0.3}}],
            "traffic": [{"job": "llm", "from": one, "to": two, "rate": rate} for one, two, rate in traffic],
            "events": list(events),
            "until": until,
        }
    )


def play(played: Scenario) -> ServingResult:
    (result,) = replay(played).results
    assert isinstance(result, ServingResult)
    return result


BURSTS: list[Traffic] = [(30, 40, 4), (110, 120, 6)]


def test_a_job_goes_to_zero_and_back_without_a_lost_request() -> None:
    result = play(scenario(BURSTS, 200))
    assert result.log.total > 60 and result.log.outcomes == {Outcome.OK: result.log.total}, result.log
    assert result.job.status.roles[0].desired == 0, "the job is at zero at the end"
    slowest = max(result.log.seconds)
    assert 5 < slowest < 30, "a request has waited for a replica"


def test_requests_that_come_on_the_way_to_zero_are_not_lost() -> None:
    # The time between two requests is about that of the way to zero.
    rare: list[Traffic] = [(at, at + 0.5, 2.0) for at in range(40, 300, 38)]
    result = play(scenario(rare, 330, seed=3))
    assert result.log.total > 3 and result.log.outcomes == {Outcome.OK: result.log.total}, result.log


@pytest.mark.parametrize(("hold", "outcome"), [(60, Outcome.SHED), (200, Outcome.OK)])
def test_requests_wait_for_a_slow_replica_as_long_as_the_spec_says(hold: int, outcome: Outcome) -> None:
    scaling = {"holdSeconds": hold, "cooldownSeconds": 150}
    result = play(scenario([(310, 311, 2)], 430, load=100, scaling=scaling))
    assert result.log.total and result.log.outcomes == {outcome: result.log.total}, result.log


def test_a_flood_at_zero_is_shed_beyond_the_bound() -> None:
    result = play(scenario([(70, 71, 1000)], 150))
    log = result.log
    assert log.outcomes[Outcome.OK] + log.outcomes[Outcome.SHED] == log.total > 900
    assert 0 < log.outcomes[Outcome.OK] <= 2 * activator.MAX_REQUESTS + 64


def test_a_replica_that_goes_before_the_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = activation.decide

    def hasty(*arguments: Any) -> activation.Activation:
        made = decide(*arguments)
        return activation.Activation(made.front, made.desired, kept=0)

    monkeypatch.setattr(activation, "decide", hasty)
    with pytest.raises(InvariantViolation, match="noEndpoint"):
        play(scenario([(30, 60, 2), *((at, at + 1.0, 5.0) for at in range(61, 140, 2))], 200))


PAIRS = {
    "killNode": "returnNode",
    "cutNode": "healNode",
    "drainNode": "uncordonNode",
    "crashAgent": "startAgent",
}
FAULTS_END = 150.0


def events(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the random faults of one life, and at last the end of all faults."""
    for _ in range(rng.randint(1, 6)):
        at = rng.uniform(15, 120)
        action = rng.choice((*PAIRS, "killRank", "deletePod", "deletePod", "crashOperator", "stopApiServer"))
        if action in PAIRS:
            node = f"node-{rng.randrange(NODES)}"
            yield {"at": at, "do": action, "node": node}
            yield {"at": rng.uniform(at, FAULTS_END), "do": PAIRS[action], "node": node}
        elif action in ("killRank", "deletePod"):
            role = rng.choice(("server", "activator"))
            yield {"at": at, "do": action, "pod": f"llm-{role}-{rng.randrange(2)}-0"}
        else:
            yield {"at": at, "do": action}
    yield {"at": FAULTS_END, "do": "startApiServer"}


@pytest.mark.timeout(cases(60))
def test_random_lives_with_zero_keep_the_invariants() -> None:
    for seed in range(cases(1)):
        rng = random.Random(seed)
        traffic: list[Traffic] = [
            (at, at + rng.uniform(1, 20), rng.choice((0.5, 2, 8))) for at in (20, 80, 130, 250)
        ]
        faults = sorted(events(rng), key=lambda event: event["at"])
        result = play(scenario(traffic, 400, *faults, seed=seed, load=rng.choice((0.5, 4, 12))))
        assert result.job.status.roles[0].desired == 0, (seed, result.job.status)
        assert result.left == 0, seed
