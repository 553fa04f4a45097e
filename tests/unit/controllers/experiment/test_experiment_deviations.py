"""Tests of what deviates from the plan of an Experiment: the status and the analysis get it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.unit.controllers.experiment.labs import Lab

from convoy_controllers.experiment.observe import _busy
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.views import PodView
from convoy_crds.experiment_hash import plan_hash
from convoy_crds.meta import Condition


def found(lab: Lab, kind: str) -> Condition | None:
    """Return a condition of the experiment; None without it."""
    return next((one for one in lab.status.conditions if one.type == kind), None)


def end_runs(lab: Lab, count: int) -> None:
    """Let so many runs succeed, one after the other."""
    for _ in range(count):
        lab.end(lab.active[0], {"figures": {"latePercent": 1.0}})
        lab.settle()


def started(**spec: object) -> Lab:
    """Return an experiment whose first run is active."""
    lab = Lab(**spec)
    lab.register()
    return lab


def test_a_stop_marks_the_verdicts_and_the_analysis_gets_it() -> None:
    lab = started()
    assert found(lab, "StoppedEarly") is None
    end_runs(lab, 2)
    lab.change(stop=True)
    lab.settle()
    condition = found(lab, "StoppedEarly")
    assert condition is not None and (condition.status, condition.reason) == ("True", "ExperimentStopped")
    assert condition.message.startswith("spec.stop became true after 1 of 3 blocks")
    assert [(one.reason, one.message) for one in lab.data.deviations] == [
        ("ExperimentStopped", condition.message)
    ]
    lab.analyse()
    assert lab.status.summary == "1 Supported; stopped early"
    assert "1 Supported; stopped early. CheckpointStore" in lab.status.message


def test_a_deadline_marks_the_verdicts_too() -> None:
    lab = started(activeDeadlineSeconds=600)
    end_runs(lab, 2)
    lab.wait(601)
    lab.settle()
    assert [one.reason for one in lab.data.deviations] == ["ExperimentDeadlineExceeded"]


def test_a_stop_after_the_last_block_is_none() -> None:
    lab = started()
    lab.run_all()
    lab.change(stop=True)
    lab.settle()
    assert lab.data.deviations == []
    lab.analyse()
    assert (found(lab, "StoppedEarly"), lab.status.summary) == (None, "1 Supported")


def test_the_analysis_gets_a_changed_image() -> None:
    lab = started()
    engine = lab.engines["experiment-simulation"]
    changed = engine.model_copy(update={"spec": engine.spec.model_copy(update={"image": "other:1"})})
    lab.engines["experiment-simulation"] = changed
    lab.run_all()
    (one,) = lab.data.deviations
    assert one.reason == "EngineChanged" and "has image other:1" in one.message


def test_an_experiment_with_too_many_failed_blocks_has_no_verdicts() -> None:
    lab = started(maxFailedBlocks=0)
    lab.end(lab.active[0], None, "Failed")
    lab.settle()
    end_runs(lab, 1)
    assert [one.reason for one in lab.data.deviations] == ["TooManyFailedBlocks"]
    lab.analyse()
    assert (lab.status.phase, lab.status.verdicts, lab.status.summary) == ("Failed", [], "")


def test_a_field_that_a_later_version_adds_is_no_edit_and_no_part_of_the_plan() -> None:
    lab = Lab()
    later = lab.raw
    lab.raw = {name: value for name, value in later.items() if name != "maxAttempts"}
    lab.register()
    registered = lab.status.plan.hash
    lab.raw = later
    lab.run_all()
    assert lab.status.phase == "Analysing"
    given = lab.params(lab.named("-result-"))["plan"]
    assert "maxAttempts" not in given["spec"] and plan_hash(given) == registered == lab.status.plan.hash


def test_unequal_magnitudes_are_a_mark_of_the_verdict() -> None:
    lab = started()
    lab.run_all()
    lab.analyse(verdicts=[[0, None, "Supported", 1.5, 1.0, 2.0, 0.01, 0.5, 3, 1]])
    assert lab.status.verdicts[0].unequal is True
    assert lab.status.to_dict()["verdicts"][0]["unequal"] is True


def test_a_job_of_the_expected_name_without_the_label_of_the_plan_is_replaced() -> None:
    lab = Lab()
    lab.settle()
    name = lab.named("-plan-")
    lab.vanish(name)
    lab.experiment.status.internal.steps[0].uid = ""
    lab.create(name)
    lab.end(name, {"planHash": lab.status.plan.hash})
    foreign = lab.jobs[name].uid
    lab.settle()
    assert lab.status.phase == "Registering" and lab.jobs[name].uid != foreign
    assert lab.events.count("StaleResult") == 1


def test_pods_of_a_step_whose_job_is_gone_keep_it_busy() -> None:
    lab = Lab()
    lab.settle()
    name = lab.named("-plan-")
    uid = lab.jobs[name].uid
    pods = [PodView(f"{name}-worker-0", "pod", "Running", owner_uid=uid)]

    class Caches:
        """The caches after the job was deleted, while its pod still runs."""

        def pods(self, namespace: str, job: str) -> list[PodView]:
            return pods if (namespace, job) == ("default", name) else []

        def now(self) -> datetime:
            return EPOCH

    reader: Any = Caches()
    assert set(_busy(reader, lab.experiment, {})) == {uid}
    lab.vanish(name)
    lab.busy = {uid}
    lab.settle()
    assert lab.active == [], "the next attempt waits for the pod"
    lab.busy = set()
    lab.settle()
    assert lab.named("-plan-2") in lab.jobs
