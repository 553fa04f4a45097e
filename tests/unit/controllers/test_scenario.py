"""Tests of scenario files: which files are rejected, and what a replay of the examples prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from convoy_controllers.simulate.replay import MAX_ENTRIES, History, replay
from convoy_controllers.simulate.scenario import ACTIONS, Scenario
from convoy_controllers.simulate.serving.monitor import ServingResult
from convoy_controllers.simulate.serving.requests import Cause, Outcome
from convoy_controllers.simulate.training_jobs import TrainingResult, seconds_by_cause
from convoy_crds.trainingjob_status import Phase

FOLDER = Path(__file__).parents[3] / "examples" / "scenarios"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))


def body(**more: Any) -> dict[str, Any]:
    spec = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}]}
    job = {"metadata": {"name": "train"}, "spec": spec}
    return {"nodes": [{"name": "a"}, {"name": "b"}], "jobs": [{"job": job}], **more}


def play(name: str) -> History:
    return replay(Scenario.model_validate(yaml.safe_load((FOLDER / name).read_text())))


def test_schema_lists_exactly_the_supported_actions() -> None:
    field = Scenario.model_json_schema()["$defs"]["ScenarioEvent"]["properties"]["do"]
    assert set(field["enum"]) == ACTIONS.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"events": [{"at": 1, "do": "killNode"}]}, "killNode needs node and no other"),
        ({"events": [{"at": 1, "do": "killRank", "job": "train"}]}, "killRank needs job and rank"),
        (
            {"events": [{"at": 1, "do": "crashOperator", "node": "a"}]},
            "takes no node, job, rank, pod or spec",
        ),
        ({"events": [{"at": 1, "do": "explode"}]}, "Input should be"),
        ({"events": [{"at": -1, "do": "crashOperator"}]}, "greater than or equal to 0"),
        (
            {"events": [{"at": 1, "do": "killNode", "node": "z"}]},
            r"events\[0\].node: node 'z' is not in nodes",
        ),
        ({"events": [{"at": 1, "do": "suspend", "job": "z"}]}, r"events\[0\].job: job 'z' is not in jobs"),
        ({"events": [{"at": 1, "do": "deletePod", "pod": "z"}]}, r"events\[0\].pod: no job has a pod 'z'"),
        (
            {"events": [{"at": 1, "do": "killRank", "job": "train", "rank": 2}]},
            r"events\[0\].rank: train has only ranks 0 to 1",
        ),
        (
            {"events": [{"at": 1, "do": "edit", "job": "train", "spec": {"roles": []}}]},
            r"events\[0\].spec.roles",
        ),
        ({"events": [{"at": 1, "do": "edit", "job": "train"}]}, "edit needs job and spec"),
        ({"jobs": [{"job": {"kind": "Engine"}}]}, "must be one of TrainingJob, ServingJob, is 'Engine'"),
        ({"traffic": [{"job": "train", "rate": 1}]}, "is a TrainingJob, which receives no requests"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "nodes: 'a' is listed twice"),
        ({"nodes": []}, "at least 1 item"),
        ({"surprise": 1}, "Extra inputs are not permitted"),
    ],
)
def test_inconsistent_scenario_is_rejected(change: dict[str, Any], words: str) -> None:
    Scenario.model_validate(body())
    with pytest.raises(ValidationError, match=words):
        Scenario.model_validate(body(**change))


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = play("node-loss.yaml"), play("node-loss.yaml")
    assert first.entries == second.entries and first.results == second.results
    other = Scenario.model_validate(yaml.safe_load((FOLDER / "node-loss.yaml").read_text()))
    other.seed = 99
    assert replay(other).entries != first.entries


def test_examples_are_complete() -> None:
    training = {"node-loss.yaml", "crash-loop.yaml", "control-plane.yaml", "independent.yaml"}
    assert {path.name for path in EXAMPLES} == training | {"serving-rollout.yaml", "serving-follow.yaml"}


def test_job_shrinks_after_a_node_loss_and_regrows() -> None:
    history = play("node-loss.yaml")
    (result,) = history.results
    assert isinstance(result, TrainingResult)
    status = result.job.status
    assert status.phase is Phase.SUCCEEDED and status.restarts.counted == 1
    lines = [line.what for line in history.entries]
    assert any("Shrunk" in line and "without train-worker-" in line for line in lines)
    assert any("Regrow" in line for line in lines)
    assert sum(status.goodput.seconds.values()) == pytest.approx(sum(result.truth.values()), abs=0.01)
    for cause, ledger, truth in seconds_by_cause(result):
        assert ledger == pytest.approx(truth, abs=max(0.5, 0.05 * truth)), cause


def test_crash_loop_fails_the_job_at_the_third_error() -> None:
    history = play("crash-loop.yaml")
    status = history.results[0].job.status
    assert (status.phase, status.reason, status.restarts.total) == (Phase.FAILED, "RepeatedError", 2)
    assert history.seconds < 200


def test_job_is_not_affected_by_control_plane_faults() -> None:
    status = play("control-plane.yaml").results[0].job.status
    assert (status.phase, status.restarts.total, status.incarnation) == (Phase.SUCCEEDED, 0, 1)


def test_serving_rollout_loses_requests_only_with_the_node() -> None:
    (result,) = play("serving-rollout.yaml").results
    assert isinstance(result, ServingResult)
    assert [one.result for one in result.rollouts] == ["complete", "complete", "halted", "complete"]
    assert {one.fewest for one in result.rollouts[1:]} == {3}
    assert result.log.outcomes[Outcome.LOST] + result.log.causes[Cause.UNREACHABLE] < 0.02 * result.log.total
    assert set(result.log.causes) == {Cause.UNREACHABLE}


def test_replicas_follow_the_checkpoints_of_a_job_under_load() -> None:
    _, result = play("serving-follow.yaml").results
    assert isinstance(result, ServingResult)
    assert len(result.rollouts) == 5 and {one.result for one in result.rollouts} == {"complete"}
    assert result.log.outcomes[Outcome.OK] == result.log.total > 3000
    assert result.job.status.model is not None and result.job.status.model.step > 900


def test_entries_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoy_controllers.simulate.replay.MAX_ENTRIES", 3)
    history = play("control-plane.yaml")
    assert len(history.entries) == 3 < MAX_ENTRIES and history.dropped > 0


def test_replay_ends_at_its_time_limit() -> None:
    scenario = Scenario.model_validate(body(until=30))
    history = replay(scenario)
    assert history.seconds == 30 and history.results[0].job.status.phase is Phase.RUNNING
