"""Tests of `spec.lint`: the condition Advice, the findings and facts in the status, and `enforce: Deny`."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.run_view import FolderView, RunView
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.run_facts import merged
from convoy_controllers.views import PodView, RankView, SlotView
from convoy_crds.advice import RunFacts, Usage
from convoy_crds.meta import Condition
from convoy_crds.trainingjob_status import Phase

IMAGE = "registry.example.com/train@sha256:" + "0" * 64


def roles(image: str = IMAGE, **resources: str) -> dict[str, Any]:
    """Return the fields of a job with an image of its own."""
    container = {
        "name": "worker",
        "image": image,
        "command": ["python", "train.py", "--seed=1"],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"} | resources},
    }
    return {
        "engine": None,
        "roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}],
    }


def linted(image: str = IMAGE, **lint: Any) -> ToyCluster:
    return ToyCluster(make_job(lint=lint, **roles(image))).settle()


def condition(cluster: ToyCluster, kind: str) -> Condition | None:
    return next((one for one in cluster.job.status.conditions if one.type == kind), None)


def reason(cluster: ToyCluster, kind: str = "Advice") -> str | None:
    found = condition(cluster, kind)
    return found and f"{found.status} {found.reason}"


def test_without_lint_there_is_no_condition() -> None:
    cluster = ToyCluster(make_job(**roles("train"))).settle()
    assert condition(cluster, "Advice") is None
    assert cluster.job.status.advice == []
    assert cluster.job.status.facts is None


@pytest.mark.parametrize(
    ("image", "expected"),
    [(IMAGE, "False RulesKept"), ("train:1.4", "False HintsOnly"), ("train", "True RulesViolated")],
)
def test_the_condition_shows_the_worst_finding(image: str, expected: str) -> None:
    cluster = linted(image)
    assert reason(cluster) == expected
    assert cluster.job.status.phase is Phase.RUNNING, "it only warns"


def test_the_findings_are_in_the_status_and_an_event() -> None:
    cluster = linted("train")
    (found,) = cluster.job.status.advice
    path = "spec.roles[0].template.spec.containers[0].image"
    assert (found.rule, found.path) == ("T01", path)
    advice = condition(cluster, "Advice")
    assert advice is not None
    assert advice.message == f"1 warnings and 0 hints: T01 {path}"
    assert cluster.events.count("RulesViolated") == 1


def test_an_ignored_rule_is_not_shown() -> None:
    assert reason(linted("train", ignore=["T01"])) == "False RulesKept"


def test_the_condition_goes_with_the_setting() -> None:
    cluster = linted("train")
    cluster.spec(lint=None)
    cluster.settle()
    assert condition(cluster, "Advice") is None
    assert cluster.job.status.advice == []


def test_a_denied_job_starts_after_the_remedy() -> None:
    cluster = linted("train", enforce="Deny")
    assert cluster.job.status.phase is Phase.PENDING
    assert cluster.pods == {}
    valid = condition(cluster, "Valid")
    assert valid is not None
    assert (valid.status, valid.reason) == ("False", "AdviceDenied")
    assert valid.message.startswith("spec.roles[0].template.spec.containers[0].image: image train has no tag")
    assert reason(cluster) == "True RulesViolated"
    cluster.spec(**roles())
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert reason(cluster, "Valid") == "True Accepted"


def test_a_hint_does_not_deny() -> None:
    assert linted("train:1.4", enforce="Deny").job.status.phase is Phase.RUNNING


def test_a_job_that_has_started_is_not_stopped_at_a_fault() -> None:
    cluster = linted("train")
    cluster.spec(lint={"enforce": "Deny"})
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert reason(cluster, "Valid") == "True Accepted"
    cluster.exit(0, code=1)
    cluster.settle()
    assert cluster.job.status.phase is Phase.RUNNING
    assert cluster.job.status.incarnation == 2


def test_the_facts_of_the_run_are_judged() -> None:
    cluster = linted()
    facts = RunView((FolderView("/data", 20_000, 8192),), cpu_seconds=6, seconds=60)
    cluster.train(5).rank(0, facts=facts, save_seconds=0.5).settle()
    found = cluster.job.status.facts
    assert found is not None
    assert [one.to_dict() for one in found.data] == [{"path": "/data", "files": 20_000, "medianBytes": 8192}]
    assert found.save_seconds == 0.5
    assert "T09" in [one.rule for one in cluster.job.status.advice]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [({"type": "integer", "default": 1}, "False RulesKept"), ({"type": "integer"}, "False HintsOnly")],
)
def test_the_default_seed_of_the_engine_counts(seed: dict[str, Any], expected: str) -> None:
    schema = {"type": "object", "properties": {"steps": {"type": "integer"}, "seed": seed}}
    cluster = ToyCluster(make_job(lint={}), make_engine(paramsSchema=schema)).settle()
    assert reason(cluster) == expected


POD = PodView("p", "u", "Running", cpu_millicores=8000, requests={"nvidia.com/gpu": 4000, "cpu": 8000})


def of(
    facts: RunView | None, stored: RunFacts | None = None, incarnation: int = 1, **rank: Any
) -> RunFacts | None:
    """Return the facts after a report of a pod's first rank."""
    view = SlotView("u", "n", True, incarnation=1, ranks=(RankView(0, "RUNNING", facts=facts, **rank),))
    return merged(stored, incarnation, {"u": view}, [POD])


def test_use_is_measured_against_the_requests() -> None:
    found = of(RunView(cpu_seconds=120, seconds=60, accelerators=4, accelerator_seconds=30))
    assert found is not None
    assert found.processors == Usage(requested=8.0, used=2.0, seconds=60)
    assert found.accelerators == Usage(requested=4.0, used=2.0, seconds=60)


def test_use_over_a_short_time_is_not_shown() -> None:
    assert of(RunView(cpu_seconds=1, seconds=59)) is None
    assert of(None) is None


def test_a_figure_moves_only_if_it_moves_far() -> None:
    stored = of(RunView(cpu_seconds=120, seconds=60), save_seconds=1.0)
    assert of(RunView(cpu_seconds=260, seconds=120), stored, save_seconds=1.1) == stored
    moved = of(RunView(cpu_seconds=480, seconds=120), stored, save_seconds=1.3)
    assert moved is not None
    assert moved.processors == Usage(requested=8.0, used=4.0, seconds=120)
    assert moved.save_seconds == 1.3


def test_an_older_incarnation_changes_nothing() -> None:
    stored = of(RunView(cpu_seconds=120, seconds=60))
    assert of(RunView(cpu_seconds=0, seconds=600), stored, incarnation=2) == stored
