"""Tests of the runs of an Experiment: failures, lost jobs, replaced attempts, places and ends."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import make_store
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.experiment_arm import Simulation

from .labs import Lab


def running(**spec: Any) -> Lab:
    """Return an experiment whose first run has started."""
    lab = Lab(**spec)
    lab.register()
    return lab


def succeed(lab: Lab, name: str, value: float = 1.0) -> None:
    """Let a run succeed."""
    lab.end(name, {"figures": {"latePercent": value}})
    lab.settle()


def test_a_failed_job_is_a_failed_block_and_never_runs_again() -> None:
    lab = running()
    name = lab.named("-b0-")
    lab.end(name, None, "Failed", reason="RankFailed", message="code 1")
    lab.settle()
    lab.run_all()
    row = next(one for one in lab.status.blocks if one.id == 0)
    (failure,) = row.failures
    assert (failure.reason, failure.message) == ("JobFailed", f"job {name} failed: RankFailed: code 1")
    assert [figure.arm for figure in row.figures] == [arm for arm in row.arms if arm != failure.arm]
    assert lab.created.count(name) == 1
    assert not [one for one in lab.created if one.startswith(name[:-1]) and one != name]
    assert lab.status.failed_blocks == 1
    assert lab.status.phase == "Analysing"
    assert "BlockFailed" in lab.events


def test_a_lost_job_gets_another_attempt() -> None:
    lab = running()
    name = lab.named("-b0-")
    lab.vanish(name)
    lab.settle()
    again = lab.named("-b0-")
    assert (name[-2:], again) == ("-1", f"{name[:-1]}2")
    lab.run_all()
    assert lab.status.failed_blocks == 0


def test_a_job_that_is_lost_too_often_is_a_failed_block() -> None:
    lab = running(maxAttempts=2)
    for _ in range(2):
        lab.vanish(lab.named("-b0-"))
        lab.settle()
    (failure,) = [one.failure for one in lab.status.runs if one.failure]
    assert failure.reason == "JobDisappeared"
    assert "maxAttempts=2" in failure.message


def test_another_attempt_waits_for_the_pods_of_the_lost_job() -> None:
    lab = running()
    name = lab.named("-b0-")
    lab.busy.add(lab.jobs[name].uid)
    lab.vanish(name)
    lab.settle()
    assert lab.active == []
    assert lab.plan().requeue_after == 2.0
    lab.busy.clear()
    lab.settle()
    assert lab.named("-b0-") == f"{name[:-1]}2"


def test_a_result_of_a_replaced_attempt_is_refused_and_counted_once() -> None:
    lab = running()
    first = lab.named("-b0-")
    lab.vanish(first)
    lab.settle()
    lab.lingering = True
    lab.create(first)
    lab.end(first, {"figures": {"latePercent": 99.0}})
    for _ in range(3):
        lab.settle()
    assert lab.status.stale_results == 1
    assert lab.jobs[first].deleting
    lab.lingering = False
    lab.finish_deletions()
    lab.run_all(lambda params: {"latePercent": 1.0})
    assert {figure.value for row in lab.status.blocks for figure in row.figures} == {1.0}
    assert lab.status.stale_results == 1
    assert lab.events.count("StaleResult") == 1


def test_a_late_job_of_a_replaced_attempt_holds_a_place_until_it_is_gone() -> None:
    lab = running()
    first = lab.named("-b0-")
    lab.vanish(first)
    lab.settle()
    second = lab.named("-b0-")
    lab.lingering = True
    lab.create(first)
    lab.settle()
    assert lab.jobs[first].deleting
    succeed(lab, second)
    assert lab.active == [first]
    lab.lingering = False
    lab.finish_deletions()
    lab.settle()
    assert len(lab.active) == 1


def test_a_foreign_job_with_the_name_of_a_run_does_not_count() -> None:
    lab = running()
    name = lab.named("-b0-")
    lab.vanish(name)
    lab.create(name)
    lab.end(name, {"figures": {"latePercent": 99.0}})
    lab.settle()
    lab.run_all(lambda params: {"latePercent": 1.0})
    assert {figure.value for row in lab.status.blocks for figure in row.figures} == {1.0}
    assert lab.status.stale_results == 1


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_parallelism_is_used_and_never_exceeded(parallelism: int) -> None:
    lab = running(parallelism=parallelism)
    most = 0
    while runs := lab.active:
        most = max(most, len(runs))
        if "-result-" in runs[0]:
            break
        succeed(lab, runs[-1])
    assert most == parallelism
    assert lab.status.progress == "3/3"


def test_a_job_that_is_being_deleted_holds_its_place() -> None:
    lab = running(runDeadlineSeconds=60)
    lab.lingering = True
    name = lab.named("-b0-")
    lab.wait(61)
    lab.settle()
    assert lab.active == [name]
    assert lab.jobs[name].deleting
    lab.finish_deletions()
    lab.settle()
    assert name not in lab.active
    assert len(lab.active) == 1


def test_a_run_has_a_deadline() -> None:
    lab = running(runDeadlineSeconds=60)
    assert lab.plan().requeue_after == 60
    lab.wait(61)
    lab.settle()
    (failure,) = [one.failure for one in lab.status.runs if one.failure]
    assert failure.reason == "RunDeadlineExceeded"


def test_a_run_whose_job_is_refused_fails_at_its_deadline() -> None:
    lab = running(runDeadlineSeconds=60)
    name = lab.named("-b0-")
    lab.vanish(name)
    lab.refused[f"{name[:-1]}2"] = Refusal("exceeded quota: jobs")
    lab.step()
    assert (lab.status.phase, lab.status.reason) == ("Running", "JobRefused")
    assert "exceeded quota" in lab.status.message
    del lab.jobs[f"{name[:-1]}2"]
    lab.wait(61)
    lab.step()
    (failure,) = [one.failure for one in lab.status.runs if one.failure]
    assert failure.reason == "RunDeadlineExceeded"
    assert "(refused: exceeded quota: jobs) took longer than spec.runDeadlineSeconds=60 s" in failure.message


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"figures": {}},
        {"figures": {"latePercent": None}},
        {"figures": {"latePercent": "NaN"}},
        {"figures": {"latePercent": True}},
        {"figures": {"latePercent": float("nan")}},
        {"figures": {"latePercent": float("inf")}},
        {"figures": {"latePercent": 10**400}},
        {"figures": {"other": 1.0}},
        {"figures": []},
    ],
)
def test_no_value_is_a_failed_block_and_never_a_pass(result: Any) -> None:
    lab = running()
    lab.end(lab.named("-b0-"), result)
    lab.settle()
    lab.run_all()
    row = next(one for one in lab.status.blocks if one.id == 0)
    assert [one.reason for one in row.failures] == ["NoValue"]
    assert "late" in row.failures[0].message


def test_a_censored_run_is_kept_with_its_bound() -> None:
    outcome = {"name": "late", "source": {"metric": "latePercent"}, "better": "Lower", "censoredAt": 100}
    lab = running(outcomes=[outcome])
    lab.end(lab.named("-b0-"), {"figures": {}})
    lab.settle()
    lab.end(lab.named("-b0-"), {"figures": {"latePercent": 77.0}, "censored": ["latePercent"]})
    lab.settle()
    row = next(one for one in lab.status.blocks if one.id == 0)
    assert [(one.value, one.censored) for one in row.figures] == [(100.0, True), (77.0, True)]
    assert not row.failed


def test_outcomes_come_from_status_metrics_and_results() -> None:
    outcomes = [
        {"name": "goodput", "source": {"status": "goodput.ratio"}, "better": "Higher"},
        {"name": "first", "source": {"status": "roles.0.ready"}, "better": "Higher"},
        {"name": "loss", "source": {"metric": "loss"}, "better": "Lower"},
        {"name": "speed", "source": {"metric": "speed"}, "better": "Higher"},
    ]
    prediction = {"name": "p", "outcome": "goodput", "candidate": "fast", "comparator": "hpa"}
    lab = running(outcomes=outcomes, predictions=[{**prediction, "direction": "Better"}])
    metrics = [{"name": "loss", "value": 0.5, "step": 3}]
    status: dict[str, Any] = {
        "goodput": {"ratio": 0.9},
        "roles": [{"ready": 2}],
        "progress": {"metrics": metrics},
    }
    lab.end(lab.named("-b0-"), {"speed": 7}, **status)
    lab.settle()
    (record,) = [one for one in lab.status.runs if one.ended]
    assert {one.outcome: one.value for one in record.figures} == {
        "goodput": 0.9,
        "first": 2.0,
        "loss": 0.5,
        "speed": 7.0,
    }


def test_the_measured_magnitude_is_kept() -> None:
    lab = running()
    lab.end(lab.named("-b0-"), {"figures": {"latePercent": 1}, "achieved": 14.5})
    lab.settle()
    lab.run_all()
    row = next(one for one in lab.status.blocks if one.id == 0)
    assert [(one.arm, one.magnitude) for one in row.achieved] == [(row.arms[0], 14.5)]


def test_only_the_newest_failed_jobs_are_kept_and_none_at_the_end() -> None:
    lab = running(blocks=10, maxFailedBlocks=20)
    while names := [name for name in lab.active if "-b" in name]:
        lab.end(names[0], None, "Failed")
        lab.settle()
    kept = [name for name in lab.jobs if "-b" in name]
    assert len(kept) == 8
    assert kept == [name for name in lab.created if "-b" in name][-8:]
    assert lab.status.stale_results == 0
    lab.analyse()
    assert not [name for name in lab.jobs if "-b" in name]


def test_too_many_failed_blocks_are_analysed_and_end_as_failed() -> None:
    lab = running(blocks=10, maxFailedBlocks=1, parallelism=2)
    for _ in range(4):
        lab.end(lab.active[0], None, "Failed", reason="RankFailed", message="code 1")
        lab.settle()
    assert [name for name in lab.active if "-b" in name] == []
    lab.analyse()
    assert (lab.status.phase, lab.status.reason) == ("Failed", "TooManyFailedBlocks")
    assert "RankFailed: code 1" in lab.status.message
    assert lab.status.artefact.digest


def test_stop_analyses_the_blocks_with_results() -> None:
    lab = running()
    for _ in range(3):
        succeed(lab, lab.active[0])
    lab.change(stop=True)
    lab.settle()
    assert [name for name in lab.active if "-b" in name] == []
    assert [(row.id, len(row.figures)) for row in lab.status.blocks] == [(0, 2), (1, 1)]
    assert [one.reason for one in lab.status.blocks[1].failures] == ["RunStopped"]
    lab.change(stop=False)
    lab.settle()
    assert lab.status.phase == "Analysing"
    lab.analyse()
    assert lab.status.phase == "Succeeded"
    assert lab.status.failed_blocks == 1


def test_stop_before_any_result_has_nothing_to_analyse() -> None:
    lab = running()
    lab.change(stop=True)
    lab.settle()
    assert (lab.status.phase, lab.status.reason) == ("Failed", "NothingToAnalyse")
    assert lab.active == []


def test_the_experiment_has_a_deadline() -> None:
    lab = running(activeDeadlineSeconds=600)
    for _ in range(2):
        succeed(lab, lab.active[0])
    lab.wait(601)
    lab.settle()
    assert lab.status.phase == "Analysing"
    assert "ExperimentDeadlineExceeded" in lab.events
    assert [row.id for row in lab.status.blocks] == [0]


def test_suspend_lets_runs_end_and_starts_none() -> None:
    lab = running()
    lab.change(suspend=True)
    lab.settle()
    assert (lab.status.phase, lab.status.reason) == ("Suspended", "RunsSuspended")
    succeed(lab, lab.active[0])
    assert lab.active == []
    assert len([one for one in lab.status.runs if one.ended]) == 1
    lab.change(suspend=False)
    lab.settle()
    assert lab.status.phase == "Running"
    lab.run_all()
    lab.analyse()
    assert lab.status.phase == "Succeeded"


def test_suspend_before_the_registration_creates_nothing() -> None:
    lab = Lab()
    lab.change(suspend=True)
    lab.settle()
    assert (lab.status.phase, lab.created) == ("Suspended", [])


def test_a_changed_engine_is_shown_for_good() -> None:
    lab = running()
    engine = lab.engines["experiment-simulation"]
    changed = engine.model_copy(update={"spec": engine.spec.model_copy(update={"image": "other:1"})})
    lab.engines["experiment-simulation"] = changed
    lab.settle()
    lab.engines["experiment-simulation"] = engine
    lab.settle()
    (found,) = [one for one in lab.status.conditions if one.type == "PlanKept"]
    assert (found.status, found.reason) == ("False", "EngineChanged")
    assert "other:1" in found.message
    assert lab.status.phase == "Running"


def test_a_store_that_fills_up_delays_the_analysis_and_loses_nothing() -> None:
    lab = running()
    lab.store = make_store(ready="False", why="no space left on device")
    lab.run_all()
    assert (lab.status.phase, lab.status.reason) == ("Analysing", "AwaitsStore")
    assert "no space left" in lab.status.message
    assert len(lab.status.blocks) == 3
    lab.store = make_store()
    lab.settle()
    lab.analyse()
    assert lab.status.phase == "Succeeded"


def test_an_edit_that_the_api_server_did_not_see_stops_new_runs_until_it_is_undone() -> None:
    lab = running()
    before = lab.experiment.spec.arms
    edited = before[0].model_copy(update={"simulation": Simulation(simulator="autoscaling", params={"n": 1})})
    lab.change(arms=[edited, before[1]])
    succeed(lab, lab.active[0])
    assert (lab.status.phase, lab.status.reason) == ("Running", "PlanEdited")
    assert lab.active == []
    lab.change(arms=before)
    lab.settle()
    assert lab.status.reason == "BlocksRunning"
    assert len(lab.active) == 1


def test_many_failures_at_once_do_not_exceed_the_list_of_kept_jobs() -> None:
    lab = Lab(parallelism=64, blocks=80, maxFailedBlocks=200)
    lab.register()
    for _ in range(2):
        for name in [name for name in lab.active if "-b" in name]:
            lab.end(name, None, "Failed")
        lab.lingering = True
        lab.settle()
        lab.lingering = False
        lab.finish_deletions()
        lab.settle()
    assert len(lab.status.internal.kept) == 8
