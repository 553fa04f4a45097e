"""Tests of the table "Needs attention"."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, condition, health, parsed, raw

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import attention
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of


@pytest.mark.parametrize(
    ("status", "made", "what"),
    [
        ({"phase": "Failed", "reason": "RankFailed"}, {"hours": 1}, ["Job failed"]),
        ({"phase": "Running", "reason": "Training"}, {"hours": 1}, []),
        ({"phase": "Succeeded"}, {"hours": 1}, []),
        ({"phase": "Pending", "reason": "Unschedulable"}, {"seconds": 5}, ["Job stuck"]),
        ({"phase": "Pending", "reason": "WaitingForPods"}, {"minutes": 9}, []),
        ({"phase": "Pending", "reason": "WaitingForPods"}, {"minutes": 11}, ["Job stuck"]),
        (
            {
                "phase": "Restarting",
                "reason": "FormingProcessGroup",
                "conditions": [condition("Running", "False", "x", minutes=2)],
            },
            {"hours": 5},
            [],
        ),
        (
            {
                "phase": "Restarting",
                "reason": "FormingProcessGroup",
                "conditions": [condition("Running", "False", "x", minutes=12)],
            },
            {"hours": 5},
            ["Job stuck"],
        ),
        ({}, {"minutes": 1}, []),
        ({}, {"minutes": 11}, ["Job stuck"]),
        ({"phase": "Suspended", "reason": "Suspended"}, {"hours": 1}, []),
        (
            {
                "phase": "Suspending",
                "reason": "Suspending",
                "conditions": [condition("Running", "False", "Suspending", minutes=9)],
            },
            {"hours": 5},
            [],
        ),
        (
            {
                "phase": "Suspending",
                "reason": "Suspending",
                "conditions": [condition("Running", "False", "Suspending", minutes=11)],
            },
            {"hours": 5},
            ["Suspension stuck"],
        ),
        (
            {"phase": "Suspended", "reason": "SuspendedWithoutCheckpoint"},
            {"hours": 1},
            ["Suspended without saving"],
        ),
        ({"phase": "Suspended", "reason": "QueueInactive"}, {"hours": 1}, ["Queue inactive"]),
        ({"phase": "Pending", "reason": "NeverTogether"}, {"seconds": 5}, ["Job stuck"]),
        ({"phase": "Pending", "reason": "NoRoomTogether"}, {"minutes": 9}, []),
        (
            {"phase": "Running", "conditions": [condition("GangScheduled", "False", "GangIgnored")]},
            {"hours": 1},
            ["Gangs ignored"],
        ),
        (
            {"phase": "Running", "conditions": [condition("GangScheduled", "False", "GangWaiting")]},
            {"hours": 1},
            [],
        ),
        (
            {"phase": "Running", "conditions": [condition("Checkpointing", "False", "Overdue")]},
            {"hours": 1},
            ["Checkpoints at risk"],
        ),
        (
            {"phase": "Running", "conditions": [condition("Checkpointing", "False", "NothingSaved")]},
            {"hours": 1},
            [],
        ),
        (
            {
                "phase": "Running",
                "conditions": [condition("StragglerDetected", "Unknown", "DetectorDegraded")],
            },
            {"hours": 1},
            ["Detector blind"],
        ),
        (
            {
                "phase": "Running",
                "conditions": [condition("IndependentReady", "False", "IndependentGivenUp")],
            },
            {"hours": 1},
            ["Independent pods missing"],
        ),
        (
            {
                "phase": "Pending",
                "conditions": [condition("IndependentReady", "Unknown", "IndependentWaiting")],
            },
            {"minutes": 1},
            [],
        ),
        (
            {
                "phase": "Succeeded",
                "conditions": [condition("StragglerDetected", "Unknown", "DetectorDegraded")],
            },
            {"hours": 1},
            [],
        ),
    ],
)
def test_jobs_that_need_attention(status: dict[str, Any], made: dict[str, float], what: list[str]) -> None:
    found = list(attention.of_job(parsed(made=ago(**made), **status), NOW))
    assert [one.what for one in found] == what
    assert all(one.why and one.advice and one.href == "/jobs/team/gpt" for one in found)


@pytest.mark.parametrize(
    ("others", "status", "leaves", "what"),
    [
        (True, {}, None, []),
        (True, {"phase": "Pending", "reason": "Unschedulable"}, None, []),
        (True, {"phase": "Failed", "reason": "RankFailed"}, None, ["Job failed"]),
        (False, {"phase": "Failed", "reason": "RankFailed"}, {"minutes": 1}, []),
        (False, {"phase": "Running", "reason": "Training"}, {"minutes": 11}, ["Deletion stuck"]),
    ],
)
def test_problems_of_external_and_deleting_jobs_are_listed(
    others: bool, status: dict[str, Any], leaves: dict[str, float] | None, what: list[str]
) -> None:
    body = raw(made=ago(hours=2), **status)
    if others:
        body["spec"]["managedBy"] = "example.com/other"
    if leaves:
        body["metadata"]["deletionTimestamp"] = ago(**leaves)
    found = list(attention.of_job(parser_of(TrainingJob)(body), NOW))
    assert [one.what for one in found] == what
    assert not found or found[0].why


def test_hardware_without_a_node_is_listed_by_its_own_name() -> None:
    left, here = health("Condemned", "hw-old"), health("Quarantined", "hw-new")
    kept_ones = [ParsedObject("", one.metadata.name, one.metadata.name, 1, one) for one in (left, here)]
    found = attention.gather([], kept_ones, [], [], {"node-1": here})
    assert sorted((one.where, one.href) for one in found) == [
        ("hw-old", "/nodes/hw-old"),
        ("node-1", "/nodes/node-1"),
    ]
    assert len({one.key for one in found}) == 2


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("Quarantined", "convoy guard release node-1"),
        ("Draining", "convoy guard why node-1"),
        ("Condemned", "replace the node"),
        ("Repairing", "reboot the node by hand"),
        ("Suspect", None),
        ("Qualified", None),
        ("Exempt", None),
    ],
)
def test_nodes_that_need_attention(state: str, advice: str | None) -> None:
    one = health(state, repair={"action": "Reboot", "owner": "manual"})
    found = attention.of_health(one, {"node-1": one})
    assert (advice is None) == (found is None)
    assert found is None or str(advice) in found.advice


def test_a_node_that_mode_act_would_quarantine_needs_attention() -> None:
    wanted = condition("Acting", "False", "WouldAct", minutes=2)
    weak = health("Suspect", policy="default", conditions=[wanted])
    strong = health("Suspect", policy="default", conditions=[wanted], confirmedAt=ago(minutes=1))
    assert attention.of_health(weak, {"node-1": weak}) is None
    found = attention.of_health(strong, {"node-1": strong})
    assert found is not None and (found.what, found.where) == ("Node slow", "node-1")
    assert "GuardPolicy with mode: Act" in found.advice


@pytest.mark.parametrize(
    ("state", "what"), [("Closed", None), ("Open", "Breaker open"), ("HalfOpen", "Breaker half open")]
)
def test_open_breakers_need_attention(state: str, what: str | None) -> None:
    policy = GuardPolicy.model_validate({"metadata": {"name": "p"}, "status": {"breaker": {"state": state}}})
    found = attention.of_policy(policy)
    assert (found.what if found else None) == what


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([condition("Ready", "True", "Probed")], None),
        ([condition("Ready", "False", "StoreUnreachable")], "StoreUnreachable: m"),
        ([], "no agent has tested the store yet"),
    ],
)
def test_stores_with_problems_need_attention(conditions: list[dict[str, Any]], why: str | None) -> None:
    s3 = {"endpoint": "https://s3", "bucket": "bucket", "region": "r", "credentialsSecret": "s"}
    store = CheckpointStore.model_validate(
        {
            "metadata": {"name": "s"},
            "spec": {"s3": s3, "allowedNamespaces": ["*"]},
            "status": {"conditions": conditions},
        }
    )
    found = attention.of_store(store)
    assert (found.why if found else None) == why


def test_entries_are_sorted_by_severity_then_newest_first() -> None:
    jobs = [
        parsed("slow", ago(hours=3), phase="Pending", reason="Unschedulable"),
        parsed("old", phase="Failed", reason="RankFailed", completionTime=ago(hours=2)),
        parsed("new", phase="Failed", reason="RankFailed", completionTime=ago(minutes=2)),
    ]
    found = attention.gather(attention.of_jobs(jobs, [], NOW), [], [], [], {})
    assert [one.where for one in found] == ["team/new", "team/old", "team/slow"]
    assert len({row.key for row in attention.rows(found, NOW)}) == 3
