"""Tests of the loop on simulated workers: accounts, losses, bounds of staleness, and restored states."""

from __future__ import annotations

import copy
from itertools import accumulate, pairwise
from typing import Any

import pytest

from convoy_workloads.engines.spotlight.iteration import IterationReport
from convoy_workloads.engines.spotlight.params import Cluster, Params
from convoy_workloads.engines.spotlight.simulated import workers
from convoy_workloads.engines.spotlight.simulated.availability import lives, trace_of
from convoy_workloads.engines.spotlight.simulated.run import Run
from convoy_workloads.runtime.exactness import fingerprint
from convoy_workloads.spot.ledger.request import RequestKind
from convoy_workloads.spot.trace import Notices, from_counts, steady

PROBLEM = {"kind": "ring", "prompts": 4, "modes": 4, "width": 8, "pretrainingSteps": 2, "pretrainingBatch": 8}
STORM = {
    "bootSeconds": 2,
    "hours": 0.2,
    "coldRegroupSeconds": 5,
    "zoneUpHours": 60 / 3600,
    "zoneDownHours": 10 / 3600,
    "nodeUpHours": 20 / 3600,
    "nodeDownHours": 5 / 3600,
    "noticeSeconds": 3,
    "unnoticed": 0.5,
    "rewardSeconds": 0.5,
}
"""A cluster whose nodes are lost at every phase."""


def params(**more: Any) -> Params:
    small = {
        "problem": PROBLEM,
        "samplerSteps": 3,
        "promptsPerIteration": 2,
        "groupSize": 4,
        "maxSeeds": 12,
        "evaluationSeeds": 1,
        "leaseSeconds": 6,
        "cluster": STORM,
    }
    return Params.model_validate({**small, **more})


def reports(run: Run, count: int = 6) -> list[IterationReport]:
    return [run.iterate() for _ in range(count)]


SYSTEMS = [
    {},
    {"elastic": False},
    {"warm": False},
    {"pull": False},
    {"commits": False},
    {"foresight": True},
    {"elastic": False, "warm": False, "pull": False, "commits": False},
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("systems", SYSTEMS, ids=lambda one: "-".join(one) or "all")
def test_every_request_ends_once_and_every_second_has_a_price(systems: dict[str, bool], seed: int) -> None:
    run = Run(params(systems=systems, seed=seed, sequenceParallel=[1, 2]))
    found = reports(run)
    counts = run.ledger.counts()
    assert counts["open"] == 0
    assert counts["planned"] == counts["consumed"] + counts["expired"] + counts["superseded"]
    assert [one.trained for one in found] == [8] * 6
    assert (
        counts["leased"] > counts["consumed"] or not systems.get("commits", True) or counts["timedOut"] == 0
    )
    assert abs(run.figures()["residual"]) < 1e-9
    assert counts["timedOut"] + counts["surrendered"] > 0


def test_work_goes_on_from_the_last_step() -> None:
    run = Run(params(leaseSeconds=3))
    reports(run, 8)
    counts = run.ledger.counts()
    assert counts["resumed"] > 0 and counts["committed"] > 0
    without = Run(params(leaseSeconds=3, systems={"commits": False}))
    reports(without, 8)
    assert without.ledger.counts()["resumed"] == 0


def test_the_workers_change_no_bit_of_the_samples() -> None:
    """Without exploring, the samples depend on the iteration alone."""
    prints = set()
    for systems in SYSTEMS:
        run = Run(params(selection="none", systems=systems))
        reports(run, 4)
        prints.add(fingerprint(run.policy, run.trainer.optimizer))
    assert len(prints) == 1


def test_without_spot_nodes_the_loop_goes_on() -> None:
    run = Run(params(cluster={"spot": 0}))
    found = reports(run, 6)
    assert [one.trained for one in found] == [8] * 6
    assert all(one.explored == 0 for one in found)


def test_the_loss_of_all_nodes_costs_at_most_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes vanish without notice. Their requests time out, and the trainers finish them."""
    vanishing = from_counts([(0.0, 8), (70.0, 0)], 1e6, Notices(share=0.0))
    monkeypatch.setattr(workers, "trace_of", lambda cluster, seed: vanishing)
    run = Run(params(cluster={"bootSeconds": 1}, leaseSeconds=10))
    found = reports(run, 12)
    ends = [one.end for one in found]
    longest = max(later - one for one, later in pairwise(ends))
    monkeypatch.setattr(workers, "trace_of", lambda cluster, seed: steady(0, 1e6))
    ends = [one.end for one in reports(Run(params(cluster={"bootSeconds": 1})), 3)]
    assert run.workers.nodes.counts() == {"started": 8, "running": 0, "ignored": 0}
    assert longest <= ends[2] - ends[1] + 10 + 1


def test_exploring_is_cut_off_when_the_training_ends() -> None:
    steady = {"trace": "steady", "bootSeconds": 1}
    run = Run(params(cluster=steady, maxSeeds=200))
    ends = [one.end for one in reports(run, 4)]
    alone = Run(params(cluster=steady, selection="none"))
    assert ends == pytest.approx([one.end for one in reports(alone, 4)], abs=3)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"planner": "gain"},
        {"trainOn": "explored", "staleness": {"explore": 1, "rollout": 1}},
        {"selection": "initialLatent"},
    ],
    ids=["fresh", "gain", "explored", "initialLatent"],
)
def test_a_restored_run_ends_with_the_same_bits(more: dict[str, Any]) -> None:
    whole = Run(params(**more))
    reports(whole, 4)
    saved = whole.state_dict()
    weights = {name: one.clone() for name, one in whole.policy.state_dict().items()}
    moments = copy.deepcopy(whole.trainer.optimizer.state_dict())
    other = Run(params(**more))
    other.policy.load_state_dict(weights)
    other.trainer.optimizer.load_state_dict(moments)
    other.load_state_dict(saved)
    expected, found = reports(whole, 5), reports(other, 5)
    assert found == expected
    assert fingerprint(other.policy, other.trainer.optimizer) == fingerprint(
        whole.policy, whole.trainer.optimizer
    )
    assert other.figures() == whole.figures()


def test_explored_samples_are_trained_on_without_rollouts() -> None:
    run = Run(
        params(
            trainOn="explored",
            staleness={"explore": 1, "rollout": 1},
            canary={"seeds": 0},
            cluster={"trace": "steady"},
        )
    )
    found = reports(run, 6)
    before = run.ledger.counts()["planned"]
    (last,) = reports(run, 1)
    assert last.explored == 24 and last.trained == 8
    # Only requests of the exploring were planned.
    assert run.ledger.counts()["planned"] - before == 24
    assert found[-1].update is not None and found[-1].update.clipped >= 0


def test_fresh_exploring_comes_first_and_its_samples_are_trained_on() -> None:
    run = Run(params(staleness={"explore": 0}, maxSeeds=6))
    found = reports(run, 4)
    assert all(one.explored == 12 and one.trained == 8 for one in found)
    assert run.ledger.counts()["planned"] == 4 * 12


def test_a_tripped_canary_makes_the_next_exploring_fresh() -> None:
    run = Run(
        params(
            canary={"seeds": 8, "minSpearman": 1.0}, selection="initialLatent", cluster={"trace": "steady"}
        )
    )
    found = reports(run, 8)
    trips = [one.iteration for one in found if not one.stale_allowed]
    assert trips and found[-1].stale_trips == len(trips)
    for number in trips:
        if number + 1 < len(found):
            assert found[number + 1].explored == 16  # Two seeds for each sample, before the rollouts.
            assert found[number + 1].stale_allowed


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"promptsPerIteration": 5}, "promptsPerIteration"),
        ({"maxSeeds": 3}, "maxSeeds"),
        ({"trainOn": "explored"}, "staleness.rollout"),
        ({"trainOn": "explored", "selection": "none"}, "trainOn"),
        ({"problem": {"kind": "grid", "side": 5}, "promptsPerIteration": 1}, "sequenceParallel"),
    ],
)
def test_parameters_that_would_deadlock_are_refused(more: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match=path):
        params(**more)


def test_stale_results_never_reach_the_trainer() -> None:
    run = Run(params())
    consumed = []
    consume = run.ledger.consume

    def spy(ids: Any, version: int) -> Any:
        found = consume(ids, version)
        consumed.extend((request.kind, version - result.version) for request, result in found)
        return found

    run.ledger.consume = spy  # type: ignore[method-assign]
    reports(run)
    assert {age for kind, age in consumed if kind is RequestKind.ROLLOUT} == {0}
    assert {age for kind, age in consumed if kind is RequestKind.EXPLORE} <= {0, 1}


@pytest.mark.parametrize("trace", ["g4dn-us-east-1c", "p2-us-east-1"])
def test_recorded_traces_have_the_number_of_nodes_of_the_cluster(trace: str) -> None:
    cluster = Cluster.model_validate({"trace": trace, "spot": 6})
    found = [*lives(trace_of(cluster, 1))]
    changes = sorted([(one.start, 1) for one in found] + [(one.end, -1) for one in found])
    assert max(accumulate(change for _, change in changes)) == 6
    assert all(one.start <= one.notice <= one.end for one in found)
    assert found != [*lives(trace_of(cluster, 2))]


def test_the_grid_problem_runs() -> None:
    grid = {
        "kind": "grid",
        "prompts": 4,
        "patterns": 3,
        "side": 4,
        "width": 8,
        "heads": 2,
        "pretrainingSteps": 2,
        "pretrainingBatch": 4,
    }
    run = Run(params(problem=grid))
    found = reports(run, 3)
    assert [one.trained for one in found] == [8] * 3
    assert 0 < run.held_out() < 1
