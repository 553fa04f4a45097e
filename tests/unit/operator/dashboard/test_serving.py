"""Tests of what the dashboard shows of ServingJobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from math import isnan
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.operator.dashboard.builders import NOW, ago, condition, health, texts

from convoy_controllers.cached import Pod
from convoy_controllers.resources import Resource
from convoy_controllers.views import PodView
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import Traffic
from convoy_crds.terms import LABEL_GROUP, LABEL_INDEX, LABEL_REVISION, LABEL_ROLE
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.request_guard import _PAGE
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core import attention, charts, node, serving_job, serving_jobs, timeline
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of
from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.core.traffic_series import POINTS, TrafficCurve, TrafficCurves
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.serving_job import ServingJobPage
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings

READY = condition("Available", "True", "Serving")
COMPLETE = condition("Progressing", "True", "RolloutComplete")


def served(spec: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, **status: Any) -> Any:
    body = {"roles": [{"name": "server", "engine": {"name": "lm"}}], "replicas": 2, **(spec or {})}
    metadata = {
        "name": "llm",
        "namespace": "team",
        "uid": "u-llm",
        "resourceVersion": "7",
        "creationTimestamp": ago(hours=1),
        **(meta or {}),
    }
    known = {"observedGeneration": 1, "conditions": [READY, COMPLETE], **status}
    return {"metadata": metadata, "spec": body, "status": known}


def parsed(*args: Any, **status: Any) -> ParsedObject[ServingJob]:
    return parser_of(ServingJob)(served(*args, **status))


def model(*args: Any, **status: Any) -> ServingJob:
    return ServingJob.model_validate(served(*args, **status))


def pod(number: int, slot: int = 0, revision: str = "r2", **view: Any) -> Pod:
    labels = {
        LABEL_ROLE: "server",
        LABEL_GROUP: str(number),
        LABEL_INDEX: str(slot),
        LABEL_REVISION: revision,
    }
    name = f"llm-server-{number}-{slot}"
    given = {"phase": "Running", "node": "node-1", "owner_uid": "u-llm", "ready": True, **view}
    return Pod("team", 1, "llm", PodView(name=name, uid=f"uid-{name}", labels=labels, **given))


def group(number: int, **record: Any) -> dict[str, Any]:
    return {
        "role": "server",
        "number": number,
        "revision": "r2",
        "membership": "m",
        "incarnation": 4,
        **record,
    }


def test_a_job_in_a_row() -> None:
    row = serving_jobs.row(
        parsed(
            ready="2/2",
            updateRevision="llm-abc",
            reason="RolloutComplete",
            message="all replicas run",
            traffic={"p95Ms": 250.0, "requestsPerSecond": 12.0, "queue": 3},
        ),
        NOW,
    )
    assert [cell.text for cell in row.cells] == [
        "team/llm",
        "Available",
        "2/2",
        "llm-abc",
        "250 ms",
        "12",
        "3",
        "60m",
        "RolloutComplete: all replicas run",
    ]
    assert (row.cells[0].href, row.group) == ("/serving/team/llm", "Available")


@pytest.mark.parametrize(
    ("conditions", "current", "expected"),
    [
        ([READY, COMPLETE], "r1", "Available"),
        ([condition("Valid", "False", "InvalidSpec"), READY], "r1", "Invalid"),
        ([condition("Progressing", "True", "RollingOut")], "", "Starting"),
        ([condition("Progressing", "True", "RollingOut"), READY], "r1", "Rolling out"),
        ([condition("Progressing", "False", "RevisionFailed"), READY], "r1", "Halted"),
        ([condition("Available", "False", "MinimumReplicasUnavailable"), COMPLETE], "r1", "Unavailable"),
        ([READY, condition("Degraded", "True", "ReplicaFailed")], "r1", "Degraded"),
        ([condition("Suspended", "True", "Suspended")], "r1", "Suspended"),
    ],
)
def test_the_state_is_the_gravest_of_the_conditions(
    conditions: list[Any], current: str, expected: str
) -> None:
    assert serving_jobs.state(model(conditions=conditions, currentRevision=current)) == expected


def test_jobs_without_a_status_and_of_others() -> None:
    assert serving_jobs.state(model(observedGeneration=0)) == "New"
    assert serving_jobs.state(model({"managedBy": "example.com/x"}, observedGeneration=0)) == "External"
    leaving = {"deletionTimestamp": ago(minutes=1)}
    assert serving_jobs.state(model(None, leaving)) == "Deleting"
    assert "no operator" in serving_jobs.why(model(observedGeneration=0))
    broken = parser_of(ServingJob)({**served(), "spec": {}})
    assert serving_jobs.row(broken, NOW).group == "Unreadable"
    assert serving_jobs.counts([broken, parsed()]) == {"Available": 1, "Unreadable": 1}


def test_the_facts_compare_latencies_with_the_objectives() -> None:
    slo = {"slo": {"p95Ms": 200, "ttftMs": 60}}
    facts = {
        one.label: one for one in serving_job.facts(model(slo, traffic={"p95Ms": 250, "ttftMs": 50}), NOW)
    }
    assert (facts["P95"].text, facts["P95"].tone) == ("250 ms (objective 200 ms)", Tone.WARN)
    assert facts["First token P95"].tone is Tone.PLAIN
    assert (facts["Waiting"].text, facts["Requests/s"].text) == ("-", "-")


def test_replicas_are_shown_with_their_faults() -> None:
    groups = [
        group(0),
        group(
            1,
            error="rank 0 exited with code 3",
            reason="RankFailed",
            failed=ago(minutes=5),
            times=[ago(minutes=6)],
        ),
        group(2, membership=""),
    ]
    pods = [
        pod(0),
        pod(2, phase="Pending", ready=False, node=None, unschedulable="no cpu"),
        pod(3, revision="r1", deleting=True),
    ]
    rows = serving_job.replica_rows(model(internal={"groups": groups}), pods, NOW)
    assert [line[:5] for line in texts(rows)] == [
        ["server-0", "Ready", "1/1", "r2", "node-1"],
        ["server-1", "Failed", "0/0", "r2", "not scheduled"],
        ["server-2", "Starting", "0/1", "r2", "not scheduled"],
        ["server-3", "Draining", "1/1", "r1", "node-1"],
    ]
    assert "RankFailed: rank 0 exited with code 3" in rows[1].cells[-1].text
    assert rows[1].cells[6].text == "1 of 10 in the window"
    assert "no cpu" in rows[2].cells[-1].text


def test_revisions_and_the_model_have_their_origin() -> None:
    job = model(
        {"model": {"checkpoint": {"job": "gpt", "store": "s3", "follow": True}}},
        revisions=[{"name": "r2", "number": 2}, {"name": "r1", "number": 1}],
        updateRevision="r2",
        currentRevision="r1",
        internal={"groups": [group(0), group(1, revision="r1")]},
        model={"job": "gpt", "uid": "u", "store": "s3", "step": 1200, "loss": 2.5, "since": ago(minutes=3)},
    )
    assert texts(serving_job.revision_rows(job)) == [
        ["r2", "2", "target", "1"],
        ["r1", "1", "ran in all replicas", "1"],
    ]
    rows = serving_job.model_rows(job, NOW)
    assert texts(rows) == [["gpt", "1,200", "0", "2.5", "s3", "3m ago"]]
    assert rows[0].cells[0].href == "/jobs/team/gpt"
    assert "follow" in serving_job.model_note(job)
    assert serving_job.model_rows(model(), NOW) == []


def test_unwanted_conditions_are_marked() -> None:
    found = [
        READY,
        condition("Degraded", "False", "ReplicasHealthy"),
        condition("SLOMet", "False", "ObjectivesMissed"),
    ]
    rows = serving_job.condition_rows(model(conditions=found), NOW)
    assert [row.cells[1].text for row in rows] == ["True", "False", "False (problem)"]


def test_a_job_without_replicas_says_that_it_is_scaled_to_zero() -> None:
    found = model(conditions=[condition("Available", "True", "ScaledToZero")], reason="RolloutComplete")
    assert (serving_jobs.state(found), serving_jobs.why(found)) == ("Scaled to zero", "ScaledToZero: m")


def test_the_facts_link_to_the_engine() -> None:
    found = model({"roles": [{"name": "server", "engine": {"name": "lm"}}]})
    links = [(fact.text, fact.href) for fact in serving_job.facts(found, NOW) if fact.label == "Engine"]
    assert links == [("lm", "/cluster/engines/lm")]


def test_a_curve_keeps_changes_of_the_traffic() -> None:
    curve = TrafficCurve(NOW)
    assert not curve.add(None, NOW)
    assert curve.add(Traffic(p95_ms=100.0, queue=1), NOW)
    assert not curve.add(Traffic(p95_ms=100.0, queue=1), NOW + timedelta(seconds=10))
    assert curve.add(Traffic(queue=0), NOW + timedelta(seconds=20))
    assert list(curve.queue) == [1.0, 0.0] and isnan(curve.p95[1])
    options = charts.traffic(curve, {"p95": "p95", "ttft": "first"}, "ms", NOW + timedelta(minutes=5))
    points = options["series"][0]["data"]
    assert [value for _, value in points] == [100.0, None, None]
    assert points[-1][0] == (NOW + timedelta(minutes=5)).timestamp() * 1000
    for number in range(2 * POINTS):
        curve.add(Traffic(queue=number % 2 + 5), NOW + timedelta(seconds=30 + number))
    assert len(curve.times) <= POINTS


def test_the_number_of_curves_is_bounded() -> None:
    curves = TrafficCurves(jobs=2)
    for uid in ("a", "b", "c"):
        curves.record(uid, None, NOW)
    assert len(curves) == 2 and curves.get("a") is None
    curves.remove("b")
    assert curves.get("b") is None


def test_the_page_shows_the_decisions_of_the_autoscaler() -> None:
    scaling = {"minReplicas": 2, "maxReplicas": 8}
    roles = [{"name": "server", "engine": {"name": "lm"}, "scaling": scaling}]
    grown = {"fromReplicas": 2, "toReplicas": 4, "reason": "AboveTarget", "message": "the queue is long"}
    shrunk = {"fromReplicas": 4, "toReplicas": 3, "reason": "BelowTarget", "message": "it is short"}
    made = [{"time": ago(seconds=20), **shrunk}, {"time": ago(seconds=50), **grown}]
    job = model(
        {"roles": roles, "replicas": None},
        roles=[{"name": "server", "desired": 3, "replicas": 4}],
        scaling=[{"role": "server", "decisions": made}],
    )
    assert texts(serving_job.scaling_rows(job, NOW)) == [
        ["server", "20s ago", "4 to 3", "BelowTarget: it is short"],
        ["server", "50s ago", "2 to 4", "AboveTarget: the queue is long"],
    ]
    shown = {one.label: one.text for one in serving_job.facts(job, NOW)}
    assert shown["Scaling of server"] == "4 replicas, 3 desired (limits 2 and 8)"
    assert serving_job.scaling_rows(model(), NOW) == []
    assert not any("Scaling" in one.label for one in serving_job.facts(model(), NOW))


def test_problems_are_listed_with_an_action() -> None:
    conditions = [
        condition("Available", "False", "MinimumReplicasUnavailable"),
        condition("Progressing", "False", "RevisionFailed"),
        condition("SLOMet", "Unknown", "ObjectivesUnknown"),
    ]
    found = list(attention.of_server(parsed(conditions=conditions), NOW))
    assert [(one.what, one.tone) for one in found] == [
        ("Too few replicas", Tone.BAD),
        ("Rollout halted", Tone.WARN),
    ]
    assert found[0].advice == "run: convoy why servingjob/llm -n team"
    assert list(attention.of_server(parsed(), NOW)) == []
    stuck = list(attention.of_server(parsed(observedGeneration=0), NOW))
    assert [one.what for one in stuck] == ["ServingJob stuck"]


def test_a_node_lists_its_serving_jobs() -> None:
    assert texts(node.server_rows([pod(0), pod(1)], [parsed(reason="Serving")])) == [
        ["team/llm", "Available", "2", "Serving"]
    ]


def test_the_timeline_has_the_newest_events_first() -> None:
    events = [
        {"reason": "ReplicaFailed", "type": "Warning", "lastTimestamp": ago(minutes=number), "message": "m"}
        for number in range(60, 0, -1)
    ]
    found = timeline.of_events(events)
    assert len(found) == timeline.MAX_EVENTS and found[0].at == NOW - timedelta(minutes=1)


def test_the_path_of_the_page_is_known_to_the_guard() -> None:
    assert _PAGE.fullmatch("/serving/team/llm") and not _PAGE.fullmatch("/serving/team")


class User:
    """A user who may list ServingJobs if `may` is True."""

    undecided = False

    def __init__(self, may: bool) -> None:
        self._may = may

    async def namespaces(self, present: Iterable[str], resource: Resource) -> frozenset[str]:
        assert resource.plural == "servingjobs"
        return frozenset(present if self._may else ())

    async def nodes(self) -> bool:
        return self._may


@pytest.mark.parametrize("may", [True, False])
def test_the_page_shows_the_job_only_to_users_who_may_list_it(may: bool) -> None:
    cache = DashboardCache(Feed())
    cache.servers.upsert(parsed(ready="1/2", traffic={"p95Ms": 90.0}, internal={"groups": [group(0)]}))
    cache.pods.upsert(pod(0))
    cache.healths.upsert(ParsedObject("", "hw", "u-hw", 1, health("Qualified")))
    context: Any = SimpleNamespace(
        cache=cache,
        settings=DashboardSettings(logs=False),
        api_monitor=SimpleNamespace(unavailable_since=None, recovering=[], unwatched={}),
        loading=list,
        session_resolver=SimpleNamespace(mode=AuthMode.NONE),
    )
    session: Any = SimpleNamespace(identity=Identity("ada"), access=User(may), over=False)
    request = Request({"type": "http", "path": "/serving/team/llm", "headers": [], "query_string": b""})

    async def play() -> None:
        with Client(page(""), request=request) as client:
            shown = ServingJobPage(context, session, "team", "llm", "/serving/team/llm")
            shown._events.refresh = lambda uid: None  # type: ignore[method-assign]  # nobody has any
            await shown.check_access()
            shown.show()
        assert shown._state.text == ("Available" if may else "")
        assert [line[0] for line in texts(list(shown._replicas._rows))] == (["server-0"] if may else [])
        assert ("may not see it" in shown._why.text) is not may
        client.delete()

    asyncio.run(play())
