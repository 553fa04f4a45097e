"""Tests of the content of a job's page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, pod, texts, training

from convoy_controllers.views import ContainerEnd
from convoy_crds.nodehealth import NodeHealth
from convoy_operator.dashboard.core import advice, job, timeline, traces
from convoy_operator.dashboard.core.restarts import Restart
from convoy_operator.dashboard.core.rows import Tone


def test_shares_are_in_the_order_of_causes_and_sum_up() -> None:
    model = training(
        goodput={
            "seconds": {"restart": 30, "productive": 60, "queue": 0},
            "cause": "start",
            "since": ago(seconds=10),
        }
    )
    found = job.shares(model, NOW)
    assert [(one.cause, one.seconds) for one in found] == [("productive", 60), ("start", 10), ("restart", 30)]
    assert sum(one.share for one in found) == pytest.approx(1)
    assert job.shares(training(), NOW) == []


def test_pods_are_in_the_order_of_their_ranks_with_node_and_rack() -> None:
    health = NodeHealth.model_validate(
        {"metadata": {"name": "hw"}, "status": {"nodeRef": {"name": "node-1", "rack": "r1"}}}
    )
    found = job.pod_rows(
        training(),
        [pod("gpt-w-2", node=None, phase="Pending", unschedulable="no room"), pod("odd"), pod("gpt-w-0")],
        {"node-1": health},
    )
    assert texts(found) == [
        ["0-1", "gpt-w-0", "Running", "node-1", "r1", "-"],
        ["4-5", "gpt-w-2", "Pending", "not scheduled", "-", "cannot be scheduled: no room"],
        ["-", "odd", "Running", "node-1", "r1", "-"],
    ]
    logs = "/jobs/team/gpt?rank={}#logs".format
    assert [row.cells[0].href for row in found] == [logs(0), logs(4), ""]


def test_independent_pods_are_shown_without_a_rank() -> None:
    outside = pod("gpt-rollout-0", labels={"convoy.dev/membership": "Independent"})
    (shown,) = texts(job.pod_rows(training(), [outside], {}))
    assert shown[:2] == ["independent", "gpt-rollout-0"]
    facts = {one.label: one.text for one in job.facts(training(independent="3/8"), NOW)}
    assert facts["Independent"] == "3/8"
    assert "Independent" not in {one.label for one in job.facts(training(), NOW)}


def test_ranks_close_up_where_a_pod_is_absent() -> None:
    model = training(spec={}, roles=[{"name": "w", "desired": 3, "absent": [1]}])
    assert job.ranks(model) == {"gpt-w-0": "0-1", "gpt-w-2": "2-3"}
    assert job.ranks(training(1, 1)) == {"gpt-w-0": "0"}


@pytest.mark.parametrize(
    ("view", "text", "tone"),
    [
        ({}, "-", Tone.PLAIN),
        ({"exit_code": 0}, "ended: Completed (exit code 0)", Tone.PLAIN),
        ({"exit_code": 137, "termination_reason": "OOMKilled"}, "ended: OOMKilled (exit code 137)", Tone.BAD),
        ({"deleting": True}, "deleting", Tone.QUIET),
        (
            {"waiting_reason": "ImagePullBackOff", "waiting_message": "gone"},
            "waiting: ImagePullBackOff: gone",
            Tone.WARN,
        ),
        (
            {"waiting_reason": "ImagePullBackOff", "waiting_container": "mesh", "container": "worker"},
            "container mesh is waiting: ImagePullBackOff",
            Tone.WARN,
        ),
        (
            {"failure": ContainerEnd("fetch", 42, "Error", "no bucket")},
            "container fetch exited with code 42: no bucket",
            Tone.BAD,
        ),
        (
            {"kubelet_reason": "Evicted", "kubelet_message": "The node was low on memory"},
            "Evicted: The node was low on memory",
            Tone.BAD,
        ),
        (
            {"exit_code": 0, "kubelet_reason": "DeadlineExceeded", "termination_reason": "Completed"},
            "ended: Completed (exit code 0)",
            Tone.PLAIN,
        ),
    ],
)
def test_states_of_pods(view: dict[str, Any], text: str, tone: Tone) -> None:
    assert job.pod_state(pod("a", **view)) == (text, tone)


def test_every_configured_tier_has_a_row() -> None:
    tiers = {"local": {}, "peer": {}, "remote": {"store": "s"}}
    mark = {"incarnation": 2, "step": 1500, "time": ago(minutes=3)}
    point = {
        "incarnation": 2,
        "step": 1500,
        "tier": "local",
        "time": ago(minutes=3),
        "watermarks": {"local": mark},
    }
    found = texts(job.checkpoint_rows(training(spec={"checkpoint": {"tiers": tiers}}, checkpoint=point), NOW))
    assert found[0][:3] == ["local", "1,500", "2"] and found[0][3].startswith("3m ago")
    assert [row[:2] for row in found[1:]] == [["peer", "none yet"], ["remote", "none yet"]]
    assert job.checkpoint_rows(training(), NOW) == []


def test_note_explains_why_a_slow_rank_might_not_be_found() -> None:
    condition = {
        "type": "StragglerDetected",
        "status": "Unknown",
        "reason": "LayoutUnknown",
        "message": "call job.report_layout",
        "lastTransitionTime": ago(seconds=10),
    }
    assert job.straggler_note(training(conditions=[condition])) == "LayoutUnknown: call job.report_layout"
    assert job.straggler_note(training(phase="Succeeded", conditions=[condition])) == ""
    assert job.straggler_note(training(conditions=[{**condition, "status": "False"}])) == ""
    assert job.straggler_note(training()) == ""


def test_stragglers_are_shown_with_evidence_until_the_job_ends() -> None:
    slow = {
        "cause": "Thermal",
        "place": "rank",
        "ranks": [5],
        "nodes": ["n6"],
        "sinceStep": 900,
        "slowdown": 0.23,
        "lost": 0.17,
        "persistent": True,
    }
    assert texts(job.straggler_rows(training(stragglers=[slow]))) == [
        ["rank 5", "n6", "Thermal", "+23%", "17%", "900", "yes", "peers"]
    ]
    assert job.straggler_rows(training(phase="Succeeded", stragglers=[slow])) == []


def test_advice_has_its_severity_and_remedy() -> None:
    found = [
        {"rule": "T02", "severity": "Warning", "path": "spec.x", "message": "no cpu", "remedy": "set it"},
        {"rule": "T05", "severity": "Info", "path": "spec.y", "message": "no seed", "remedy": "pass one"},
    ]
    rows = advice.rows(training(advice=found).status.advice)
    assert texts(rows) == [
        ["T02", "Warning", "spec.x: no cpu", "set it"],
        ["T05", "Info", "spec.y: no seed", "pass one"],
    ]
    assert [row.cells[1].tone for row in rows] == [Tone.WARN, Tone.PLAIN]


def test_the_facts_link_to_the_engine_and_the_experiment() -> None:
    model = training(spec={"engine": {"name": "gpt"}})
    model.metadata.labels["convoy.dev/experiment"] = "lr"
    links = {fact.label: fact.href for fact in job.facts(model, NOW) if fact.href}
    assert links == {"Engine": "/cluster/engines/gpt", "Experiment": "/experiments/team/lr"}


def test_missing_facts_of_a_job_are_dashes() -> None:
    found = {fact.label: fact.text for fact in job.facts(training(), NOW)}
    assert {
        found[label] for label in ("Step", "Progress", "Loss", "Samples/s", "Expected end", "Checkpoint")
    } == {"-"}


@pytest.mark.parametrize(
    ("progress", "text", "tone"),
    [({"loss": 2.5}, "2.5", Tone.PLAIN), ({"diverged": True}, "NaN", Tone.BAD), ({}, "-", Tone.PLAIN)],
)
def test_a_nan_loss_is_marked(progress: dict[str, Any], text: str, tone: Tone) -> None:
    found = {fact.label: fact for fact in job.facts(training(progress={"step": 1, **progress}), NOW)}
    assert (found["Loss"].text, found["Loss"].tone) == (text, tone)


@pytest.mark.parametrize(
    ("minutes", "text", "tone"),
    [(59, "3 (1 of 10 in the window)", Tone.WARN), (61, "3 (0 of 10 in the window)", Tone.PLAIN)],
)
def test_restarts_leave_the_window_by_themselves(minutes: int, text: str, tone: Tone) -> None:
    model = training(restarts={"total": 3}, internal={"restarts": {"times": [ago(minutes=minutes)]}})
    (found,) = (fact for fact in job.facts(model, NOW) if fact.label == "Restarts")
    assert (found.text, found.tone) == (text, tone)


def event(reason: str, when: str | None, **more: Any) -> dict[str, Any]:
    return {"reason": reason, "message": "m", "type": "Normal", "lastTimestamp": when, **more}


def test_the_timeline_has_events_and_the_last_restart() -> None:
    last = {
        "reason": "RankKilled",
        "message": "killed",
        "rank": 2,
        "node": "n2",
        "step": 40,
        "at": ago(hours=2),
    }
    model = training(incarnation=2, restarts={"total": 1, "last": last})
    found = timeline.entries(
        model,
        [
            event("Training", ago(minutes=5)),
            event("RankFailed", None, eventTime=ago(minutes=1), type="Warning", count=3),
            event("Lost", None),
            event("Broken", "yesterday"),
        ],
    )
    assert [(one.reason, one.tone, one.times) for one in found] == [
        ("RankFailed", Tone.WARN, 3),
        ("Training", Tone.PLAIN, 1),
        ("RankKilled", Tone.WARN, 1),
    ]
    circumstances = "rank 2 on n2, at step 40, scope Process, counts toward maxRestarts, next incarnation 2"
    assert found[-1].message == f"killed ({circumstances})"
    assert texts(timeline.rows(found, NOW))[0][1] == "RankFailed x3"


def restart(minutes: float, incarnation: int, reason: str = "RankKilled", message: str = "m") -> Restart:
    at = NOW - timedelta(minutes=minutes)
    return Restart(incarnation, reason, message, "counted", at)


KILLED, LOST = restart(90, 2), restart(40, 3, "PodLost")


@pytest.mark.parametrize(
    ("seen", "events", "expected"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param(
            [KILLED, LOST], [], ["40 PodLost then 3", "90 RankKilled then 2"], id="older than any Event"
        ),
        pytest.param(
            [KILLED, LOST],
            [event("PodLost", ago(minutes=40, seconds=-3)), event("Training", ago(minutes=39))],
            ["39 Training", "40 PodLost then 3", "90 RankKilled then 2"],
            id="one that has an Event is told once",
        ),
        pytest.param(
            [LOST],
            [event("PodLost", ago(minutes=41)), event("RankKilled", ago(minutes=40))],
            ["40 PodLost then 3", "40 RankKilled", "41 PodLost"],
            id="an Event of another one or of something else is its own",
        ),
        pytest.param(
            [restart(20, 2), restart(15, 3), restart(8, 4)],
            [event("RankKilled", ago(minutes=20)), event("RankKilled", ago(minutes=8), count=2)],
            ["8 RankKilled then 4", "15 RankKilled then 3", "20 RankKilled then 2"],
            id="one that the next Event counts is told once",
        ),
        pytest.param(
            [restart(20, 2), restart(8, 5)],
            [event("RankKilled", ago(minutes=20)), event("RankKilled", ago(minutes=8), count=3)],
            ["8 RankKilled x3 then 5", "20 RankKilled then 2"],
            id="those that an Event counts and nobody has seen are counted",
        ),
        pytest.param(
            [restart(20, 2, message="another"), restart(8, 3)],
            [event("RankKilled", ago(minutes=8), count=2)],
            ["8 RankKilled x2 then 3", "20 RankKilled then 2"],
            id="with other words it is none of those",
        ),
        pytest.param(
            [restart(20, 2), restart(8, 3), restart(4, 4)],
            [event("RankKilled", ago(minutes=8), count=2), event("RankKilled", ago(minutes=4), count=2)],
            ["4 RankKilled x2 then 4", "8 RankKilled then 3", "20 RankKilled then 2"],
            id="one is counted by one Event alone",
        ),
    ],
)
def test_recorded_restarts_and_events_are_merged(
    seen: list[Restart], events: list[dict[str, Any]], expected: list[str]
) -> None:
    found = timeline.entries(training(), events, seen)
    lines = []
    for one in found:
        times = f" x{one.times}" if one.times > 1 else ""
        then = f" then {one.message.removesuffix(')')[-1]}" if "incarnation" in one.message else ""
        lines.append(f"{(NOW - one.at).total_seconds() // 60:.0f} {one.reason}{times}{then}")
    assert lines == expected


def test_the_last_restart_keeps_its_recorded_incarnation() -> None:
    """Increase the incarnation without a restart, as a suspension does. The timeline must show the
    incarnation that was recorded with the restart.
    """
    last = {"reason": "RankKilled", "message": "m", "at": ago(minutes=8)}
    (found,) = timeline.entries(
        training(incarnation=7, restarts={"total": 1, "last": last}), [], [restart(8, 3)]
    )
    assert found.message == "m (counted, next incarnation 3)"


def test_the_timeline_is_bounded_and_keeps_every_restart() -> None:
    many = [event(f"E{number}", ago(seconds=number)) for number in range(200)]
    found = timeline.entries(training(), many, [KILLED])
    assert [one.reason for one in found][:2] == ["E0", "E1"]
    assert (len(found), found[-1].reason) == (timeline.MAX_EVENTS + 1, "RankKilled")


def test_the_result_is_shown_field_by_field() -> None:
    result = {"accuracy": 0.93, "digest": "sha256:ab", "counts": [1, {"é": None}]}
    found = texts(job.result_rows(training(phase="Succeeded", result=result)))
    assert found == [["accuracy", "0.93"], ["digest", "sha256:ab"], ["counts", '[1, {"é": null}]']]
    assert job.result_rows(training()) == []


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ({}, []),
        ({"convoy.dev/experiment": "trial"}, ["trial"]),
        (
            {"convoy.dev/experiment": "trial", "convoy.dev/block": "7", "convoy.dev/arm": "hpa"},
            ["trial: block 7, arm hpa"],
        ),
    ],
)
def test_a_run_of_an_experiment_names_its_block(labels: dict[str, str], shown: list[str]) -> None:
    one = training()
    one.metadata.labels = labels
    assert [fact.text for fact in job.facts(one, NOW) if fact.label == "Experiment"] == shown


def test_trace_is_shown_with_its_figures_and_the_command_that_fetches_it() -> None:
    assert traces.facts(training()) == []
    file = {"rank": 3, "file": "traces/trace-2.3.et"}
    trace = {
        "recording": 2,
        "state": "Stored",
        "trigger": "Straggler",
        "straggler": {"rank": 3, "node": "n4", "cause": "Compute", "sinceStep": 40},
        "incarnation": 1,
        "firstStep": 1200,
        "lastStep": 1201,
        "ranks": [0, 3],
        "files": [{**file, "rank": 0}, file],
        "bytes": 1536 * 1024,
        "commBytesPerStep": 800,
        "exposedCommunicationRatio": 0.125,
    }
    assert {one.label: one.text for one in traces.facts(training(trace=trace))} == {
        "Recording": "2 (Stored)",
        "Origin": "straggler: rank 3 on n4",
        "Steps": "1,200 to 1,201",
        "Ranks": "0, 3",
        "Incarnation": "1",
        "Files": "2 of 2",
        "Size": "1.5 MiB",
        "Communication per step": "800 B",
        "Exposed communication": "12.5%",
        "Fetch": "convoy trace fetch gpt --namespace team",
    }
    waiting = {one.label: one.text for one in traces.facts(training(trace={"recording": 1, "ranks": [0]}))}
    assert (waiting["Recording"], waiting["Steps"], waiting["Files"]) == ("1 (Waiting)", "-", "0 of 1")
    assert "Fetch" not in waiting
