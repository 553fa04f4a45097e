"""Tests of ServingJobs in the simulated cluster: rollouts and faults, as clients see them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from convoy_controllers.servingjob import endpoints, rollout
from convoy_controllers.servingjob.rollout import Budget, Changes
from convoy_controllers.simulate.job_kind import JobResult
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.simulate.replay import History, replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_controllers.simulate.serving import ranks
from convoy_controllers.simulate.serving.monitor import ServingResult
from convoy_controllers.simulate.serving.program import Amount, Distribution, ServingProgram
from convoy_controllers.simulate.serving.requests import Cause, Outcome
from convoy_controllers.simulate.violation import InvariantViolation

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


STALE = (at(55, "stopEndpoints"), EDIT, at(150, "startEndpoints"))
"""A rollout that begins while the Service keeps its old endpoints."""


def test_rollout_waits_until_the_service_lists_the_new_replica() -> None:
    _, result = play(*STALE, until=300)
    assert result.log.outcomes[Outcome.OK] == result.log.total
    assert [one.result for one in result.rollouts] == ["complete", "complete"]
    _, before = play(*STALE, until=149)
    assert before.job.status.reason == "RollingOut"
    (rolling,) = [one for one in before.job.status.conditions if one.type == "Progressing"]
    assert "replica server-3 is ready, but the Service does not list it yet" in rolling.message


def test_rollout_that_trusts_readiness_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "noted", lambda observed, group, now: group)
    with pytest.raises(InvariantViolation, match="leaves 2 available replicas"):
        play(*STALE, until=300)


@pytest.mark.parametrize(
    ("fault", "lost", "cause"),
    [
        (at(61, "killRank", pod="llm-server-0-0"), True, Cause.REFUSED),
        (at(60, "hangRank", pod="llm-server-0-0"), True, None),
        (at(60, "killNode", node="node-2"), True, Cause.UNREACHABLE),
        (at(60, "drainNode", node="node-2"), False, None),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
def test_fault_costs_only_the_requests_at_the_replica(
    fault: dict[str, Any], lost: bool, cause: Cause | None
) -> None:
    spec = {"recovery": {"hangSeconds": 10}}
    _, result = play(fault, until=100, program={"serviceSeconds": 0.5}, spec=spec)
    log = result.log
    assert bool(log.outcomes[Outcome.LOST]) is lost
    assert set(log.causes) == ({cause} if cause else set())
    assert log.outcomes[Outcome.OK] > 0.9 * log.total
    assert result.job.status.ready == "3/3" and result.job.status.reason == "RolloutComplete"


@pytest.mark.parametrize("seed", [1, 3])
def test_after_a_node_death_requests_fail_only_until_its_pods_are_not_ready(seed: int) -> None:
    """50 s after the death the node controller marks the node NotReady. No request fails at that time."""
    dead = at(60, "killNode", node="node-2")
    _, result = play(dead, until=130, spec={"replicas": 4}, rate=20, seed=seed)
    assert 60 < result.log.failed_at - EPOCH.timestamp() < 70
    assert result.job.status.ready == "4/4"


def test_replica_that_restarts_in_place_counts_as_available_only_after_a_probe() -> None:
    """The kubelet reports the restarted pod as ready for up to 2 s more. A rollout must not count on it: the
    invariants of the simulation check each deletion. The conditions must not change back and forth.
    """
    play(EDIT, at(69.38, "killRank", pod="llm-server-0-0"), seed=13, rate=2)
    history, _ = play(at(60, "killRank", pod="llm-server-0-0"), until=90, rate=2)
    lines = [line.what.split(",")[0] for line in history.entries if line.at > 60]
    assert lines == ["llm: MinimumReplicasUnavailable", "llm: RolloutComplete"]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (lambda found: replace(found, unavailable=found.desired), "demands 3"),
        (lambda found: replace(found, surge=3), "allows 4"),
    ],
)
def test_violated_budget_is_found(
    monkeypatch: pytest.MonkeyPatch, budget: Callable[[Budget], Budget], words: str
) -> None:
    real = rollout.budget
    monkeypatch.setattr(rollout, "budget", lambda *facts: budget(real(*facts)))
    with pytest.raises(InvariantViolation, match=words):
        play(EDIT, until=90, rate=1, nodes=4)


def test_replica_that_refuses_requests_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "ENDPOINT_LAG_SECONDS", 0)
    with pytest.raises(InvariantViolation, match="refused although no fault was injected"):
        play(EDIT, until=110, rate=30)


def test_job_without_progress_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "changes", lambda *_: Changes())
    with pytest.raises(InvariantViolation, match="no progress for 900 s without a reason"):
        play(until=910, rate=0.01, spec={"rollout": {"progressDeadlineSeconds": 86_400}})


def test_revision_that_crashes_halts_and_costs_no_request() -> None:
    program = {"brokenRevisions": [2], "failure": "Crash", "loadSeconds": 3}
    back = at(85, "edit", job="llm", spec={"roles": roles(1)})
    _, result = play(EDIT, back, until=95, program=program, spec={"recovery": {"maxRestarts": 1}})
    assert [one.result for one in result.rollouts] == ["complete", "halted", "complete"]
    assert result.log.outcomes[Outcome.OK] == result.log.total


def test_requests_beyond_the_drain_time_fail_and_a_full_queue_sheds() -> None:
    _, result = play(
        EDIT,
        until=110,
        rate=4,
        program={"serviceSeconds": 5, "slots": 2, "queue": 2},
        spec={"rollout": {**ROLLOUT, "drainSeconds": 1}},
    )
    assert set(result.log.causes) == {Cause.DRAIN}
    assert result.log.outcomes[Outcome.SHED] > 0 and not result.log.outcomes[Outcome.LOST]


def test_suspended_job_ends_its_requests_and_serves_again() -> None:
    _, result = play(at(60, "suspend", job="llm"), at(80, "resume", job="llm"), until=110)
    log = result.log
    assert (
        set(log.causes) == {Cause.NO_ENDPOINT} and log.total == log.outcomes[Outcome.OK] + log.causes.total()
    )
    assert result.job.status.ready == "3/3"


def test_rank_of_another_slot_ends_the_whole_replica() -> None:
    fault = at(60, "killRank", pod="llm-server-0-1")
    history, result = play(fault, until=90, nodes=4, spec={"roles": roles(1, size=2)}, seed=1)
    assert result.log.causes[Cause.REFUSED] and result.job.status.ready == "3/3"
    assert any("llm-server-0-1 ends" in line.what for line in history.entries)


def test_the_same_seed_sends_the_same_requests_whatever_fails() -> None:
    fault = at(60, "deletePod", pod="llm-server-0-0")
    (first, result), (second, again) = play(fault, until=80), play(fault, until=80)
    assert first.entries == second.entries and result.report() == again.report()
    _, calm = play(until=80)
    assert calm.log.total == calm.log.outcomes[Outcome.OK] == result.log.outcomes[Outcome.OK]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"events": [at(1, "killRank", job="llm", rank=0)]}, "ranks of its own; name a pod instead"),
        ({"events": [at(1, "killRank", pod="llm-server-0-1")]}, "no job has a pod 'llm-server-0-1'"),
        ({"traffic": [{"job": "x", "rate": 1}]}, r"traffic\[0\].job: job 'x' is not in jobs"),
        (
            {"traffic": [{"job": "llm", "rate": 1, "from": 10, "to": 5}]},
            r"traffic\[0\].to: must be after from",
        ),
        ({"traffic": [{"job": "llm", "rate": 9999}], "until": 3600}, "lower rate, to or until"),
    ],
)
def test_inconsistent_serving_scenario_is_rejected(change: dict[str, Any], words: str) -> None:
    body = scenario().model_dump(by_alias=True)
    with pytest.raises(ValidationError, match=words):
        Scenario.model_validate({**body, **change})


def test_program_has_one_speed() -> None:
    with pytest.raises(ValidationError, match="set either serviceSeconds or tokensPerSecond"):
        ServingProgram.model_validate({"serviceSeconds": 1, "tokensPerSecond": 1})


@pytest.mark.parametrize("distribution", list(Distribution))
def test_random_amounts_have_their_mean(distribution: Distribution) -> None:
    rng, amount = random.Random(1), Amount(mean=3, distribution=distribution)
    assert sum(amount.draw(rng) for _ in range(20_000)) / 20_000 == pytest.approx(3, rel=0.05)
