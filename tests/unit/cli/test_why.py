"""Tests of the output of `convoy why`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from convoy.cli.messages import ShownMessages
from convoy.cli.why import (
    EVENTS_TRUNCATED,
    describe_pod,
    event_lines,
    explanation,
    in_order,
    pod_lines,
    why,
)
from convoy_crds.trainingjob import TrainingJob

from .fake_client import client
from .test_show import NOW, job


def text(about: TrainingJob) -> str:
    return "\n".join(explanation(about, NOW, ShownMessages()))


def condition(kind: str, status: str, reason: str = "Why", message: str = "") -> dict[str, Any]:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T11:59:00Z",
    }  # fmt: skip


def event(message: str, second: int, version: int, kind: str = "Normal") -> Any:
    when = NOW.replace(second=second)
    metadata = SimpleNamespace(resource_version=str(version))
    return SimpleNamespace(
        metadata=metadata, last_timestamp=when, event_time=None, type=kind, reason="Why", message=message
    )


def container(name: str, waiting: str = "", code: int | None = None) -> Any:
    waits = SimpleNamespace(reason=waiting) if waiting else None
    ended = None if code is None else SimpleNamespace(reason="Error" if code else "Completed", exit_code=code)
    return SimpleNamespace(name=name, state=SimpleNamespace(waiting=waits, terminated=ended))


def pod(
    index: int, phase: str = "Pending", node: str | None = None, waiting: str = "", **others: list[Any]
) -> Any:
    """Return a pod whose first container is a sidecar from an admission webhook.

    `others` has the statuses of other containers: `init` for init containers, `beside` for containers
    beside the rank container.
    """
    return SimpleNamespace(
        metadata=SimpleNamespace(
            name=f"gpt-worker-{index}",
            uid=f"u{index}",
            deletion_timestamp=None,
            annotations={"convoy.dev/container": "gpt"},
        ),
        spec=SimpleNamespace(
            node_name=node, containers=[SimpleNamespace(name="mesh"), SimpleNamespace(name="gpt")]
        ),
        status=SimpleNamespace(
            phase=phase,
            init_container_statuses=others.get("init"),
            container_statuses=[*others.get("beside", []), container("gpt", waiting)],
        ),
    )


def test_the_placement_names_domains_gang_queue_and_claims() -> None:
    ranks = [{"name": f"r{number}", "ranks": 4} for number in range(10)]
    claim = {"job": "low", "namespace": "b", "role": "w", "replica": 3}
    placed = {
        "gang": "Native", "group": "job-1", "hops": 12, "claims": [claim],
        "queue": {"name": "team-a", "state": "Waiting"},
        "keys": [{"key": "topology.kubernetes.io/rack", "domains": 10, "ranks": ranks}],
    }  # fmt: skip
    lines = explanation(job(phase="Pending", placement=placed), NOW, ShownMessages())
    start = lines.index("Placement:")
    assert lines[start + 1 : start + 7] == [
        "  Domains: 10 racks",
        "  Ring hops: 12",
        "  Gang: Native, PodGroup job-1",
        "  Queue: team-a: Waiting",
        "  Room made by: 1 pod of b/low",
        "  Ranks by rack: r0 4, r1 4, r2 4, r3 4, r4 4, r5 4, r6 4, r7 4 and 2 more",
    ]
    assert "Placement:" not in text(job(phase="Running", placement={"gang": "None"}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pod(0, "Running", "n", beside=[container("mesh")]), "Running, on n"),
        (pod(0, "Running", "n", beside=[container("mesh", code=0)]), "Running, on n"),
        (
            pod(0, "Failed", "n", "PodInitializing", init=[container("fetch", code=42)]),
            "Failed, on n, container fetch ended: Error (exit code 42), waiting: PodInitializing",
        ),
        (
            pod(0, "Pending", "n", "PodInitializing", init=[container("proxy", "CrashLoopBackOff")]),
            "Pending, on n, container proxy waiting: CrashLoopBackOff, waiting: PodInitializing",
        ),
        (
            pod(0, "Pending", "n", "ContainerCreating", beside=[container("mesh", "ContainerCreating")]),
            "Pending, on n, waiting: ContainerCreating",
        ),
    ],
)
def test_a_pod_is_described_by_its_rank_container(given: Any, words: str) -> None:
    assert describe_pod(given) == words


def test_a_job_without_a_status_is_explained() -> None:
    assert "no operator has reconciled this object" in text(job())


def test_unwanted_conditions_are_marked_and_the_last_fault_is_named() -> None:
    last = {
        "reason": "RankKilled", "message": "rank 1 was killed", "rank": 1, "node": "n2",
        "at": "2026-01-01T11:59:00Z",
    }  # fmt: skip
    found = text(
        job(
            phase="Restarting",
            conditions=[condition("Restarting", "True", "RankKilled", "rank 1 was killed")],
            restarts={"total": 3, "last": last},
            internal={"restarts": {"times": [last["at"]]}},
        )
    )
    assert "! Restarting=True for 60s: RankKilled" in found and "(! marks an unwanted condition)" in found
    assert "rank 1 on node n2" in found and "1 of 10 counted restarts used" in found
    assert "No checkpoints" in found
    assert found.count("rank 1 was killed") == 1


def test_advice_is_shown_with_its_remedy() -> None:
    found = {
        "rule": "T02",
        "severity": "Warning",
        "path": "spec.roles[0].x",
        "message": "no cpu",
        "remedy": "set it",
    }
    shown = text(job(advice=[found]))
    assert "Advice T02 (Warning): spec.roles[0].x: no cpu\n  Remedy: set it" in shown
    assert "Advice" not in text(job())


def test_metrics_of_the_program_are_shown_with_their_step() -> None:
    found = [{"name": "held_out_loss", "value": 1.25, "step": 40}, {"name": "ratio", "step": 47}]
    more = [{"name": f"m{number}", "value": 1e-9, "step": 47} for number in range(9)]
    progress = {"step": 47, "metrics": [*found, *more]}
    assert "Metrics: held_out_loss 1.25 at step 40, ratio NaN, m0 1e-09, m1 " in text(job(progress=progress))
    assert "m5 1e-09 and 3 more" in text(job(progress=progress))
    assert "Metrics" not in text(job(progress={"step": 47}))


def test_stragglers_are_named() -> None:
    slow = [
        {"cause": "Compute", "place": "rank", "ranks": [3], "nodes": ["n1"], "sinceStep": 40,
         "slowdown": 0.42, "persistent": True},
        {"cause": "Imbalance", "place": "stages", "slowdown": 0.1, "sinceStep": 7},
    ]  # fmt: skip
    found = text(
        job(
            phase="Running", stragglers=slow, conditions=[condition("StragglerDetected", "True", "Straggler")]
        )
    )
    assert "! StragglerDetected=True" in found
    assert "Slow: rank 3 on n1: Compute, takes 42% longer since step 40, persistent" in found
    assert "Slow: stages, no rank to blame: Imbalance, takes 10% longer since step 7, recent" in found
    assert "Slow" not in text(job(phase="Succeeded", stragglers=slow))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_no_straggler_is_not_an_unwanted_condition(status: str) -> None:
    assert "!" not in text(job(phase="Running", conditions=[condition("StragglerDetected", status)]))


@pytest.mark.parametrize(
    ("phase", "conditions"),
    [
        ("Running", [condition("Valid", "True"), condition("Running", "True")]),
        ("Suspended", [condition("Running", "False"), condition("Suspended", "True")]),
        ("Succeeded", [condition("Running", "False"), condition("Complete", "True")]),
    ],
)
def test_wanted_conditions_are_not_marked(phase: str, conditions: list[Any]) -> None:
    assert "!" not in text(job(phase=phase, conditions=conditions))


@pytest.mark.parametrize(
    ("phase", "valid", "shown"),
    [("Running", "True", True), ("Failed", "True", False), ("Pending", "False", False)],
)
def test_missing_checkpoints_are_not_mentioned_for_ended_or_invalid_jobs(
    phase: str, valid: str, shown: bool
) -> None:
    assert ("No checkpoints" in text(job(phase=phase, conditions=[condition("Valid", valid)]))) is shown


def test_events_of_one_second_keep_the_order_in_which_they_were_stored() -> None:
    events = [event("third", 5, 101), event("first", 4, 999), event("second", 5, 100)]
    assert [one.message for one in in_order(events)] == ["first", "second", "third"]


def no_room() -> list[Any]:
    return [event("pulled", 3, 1), event("no room", 4, 2, "Warning")]


def test_equal_pods_share_a_line() -> None:
    stuck = pod(3, node="n1", waiting="ImagePullBackOff")
    gang = [(pod(index), no_room()) for index in range(512) if index != 3]
    found = pod_lines([*gang[:3], (stuck, []), *gang[3:]])
    assert [" ".join(line.split()) for line in found] == [
        "gpt-worker-0 and 510 more Pending, not scheduled",
        "Why: no room",
        "gpt-worker-3 Pending, on n1, waiting: ImagePullBackOff",
    ]


def test_few_pods_have_a_line_each() -> None:
    running = [(pod(index, "Running", f"n{index % 2}"), []) for index in range(8)]
    found = pod_lines([*running, (pod(8), no_room()), (pod(9), [])])
    assert [line.split()[0] for line in found] == [
        *(f"gpt-worker-{index}" for index in range(9)),
        "Why:",
        "gpt-worker-9",
    ]
    assert pod_lines([*running, (pod(10, "Running", "n1"), [])])[1].startswith("  gpt-worker-1 and 4 more ")


class Jobs:
    """A fake collection of jobs with the pods of one job. It counts the requests for the Events of pods."""

    def __init__(self, pods: list[Any], whole: bool = True) -> None:
        self._pods, self._whole, self.requests = pods, whole, 0

    def get(self, name: str) -> TrainingJob:
        return job(phase="Pending")

    def pods(self, name: str) -> list[Any]:
        return self._pods

    def events(self, uid: str) -> list[Any]:
        return []

    def pod_events(self) -> tuple[dict[str, list[Any]], bool]:
        self.requests += 1
        return {"u0": no_room(), "u1": no_room()}, self._whole


@pytest.mark.parametrize(
    ("phase", "whole", "requests", "warnings", "cut"),
    [("Pending", True, 1, 2, 0), ("Pending", False, 1, 2, 1), ("Running", True, 0, 0, 0)],
)
def test_events_of_pods_are_requested_once_if_a_pod_is_pending(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
    whole: bool,
    requests: int,
    warnings: int,
    cut: int,
) -> None:
    jobs = Jobs([pod(0, phase), pod(1, phase)], whole)
    monkeypatch.setattr("convoy.cli.why.connect", lambda *_: client(training=jobs))
    why("gpt")
    shown = capsys.readouterr().out
    assert (jobs.requests, shown.count("Why: no room"), shown.count(EVENTS_TRUNCATED)) == (
        requests,
        warnings,
        cut,
    )


def test_a_message_that_was_shown_is_not_shown_again() -> None:
    shown = ShownMessages()
    shown.add("exit code 1\nTraceback ...\nlast line")
    lines = event_lines([event("exit code 1\nTraceback", 4, 1), event("new\nlines", 5, 2)], NOW, shown)
    assert [line.split("Why: ")[-1].strip() for line in lines] == ["as above", "new", "lines"]


def test_independent_roles_show_their_counts() -> None:
    counts = {"completed": 1, "givenUp": 2, "restarts": 3, "preemptions": 4}
    roles: list[dict[str, Any]] = [{"name": "worker", "desired": 2, "ready": 2}]
    roles.append({"name": "rollout", "desired": 8, "ready": 5, "independent": counts})
    assert (
        "Independent role rollout: 5 of 8 pods run, 1 completed, 2 given up; 3 restarts after failures, "
        "4 preemptions" in text(job(phase="Running", reason="Training", roles=roles))
    )
