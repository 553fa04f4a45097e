"""Tests of the rules for faults, and of their records on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.fault_orders import ORDER, pod

from convoy_agents.faults import record
from convoy_agents.faults.injector import KINDS
from convoy_agents.faults.record import Record, Records
from convoy_agents.faults.rules import MAX_ACTIVE, order_refusal, target_refusal
from convoy_crds.perturbations import PERTURBATIONS, Backend, PerturbationKind


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "../x"}, "id: must be"),
        ({"id": "..x"}, "id: must be"),
        ({"kind": "Meteor"}, "'Meteor' is not registered"),
        ({"kind": "NodeLoss"}, "the agent never injects NodeLoss"),
        ({"kind": "KillPod"}, "the agent never injects KillPod"),
        ({"kind": "ObservationLag"}, "the agent never injects ObservationLag"),
        ({"magnitude": 0.5}, "magnitude: 0.5 is not between 1 and 100 factor"),
        ({"magnitude": float("nan")}, "magnitude: nan"),
        ({"kind": "KillRank", "magnitude": 1.5}, "1.5 is not a whole number of kills"),
        ({"seconds": 0.0}, "seconds: 0 is not above 0"),
        ({"seconds": 1e9}, "seconds: 1e"),
    ],
)
def test_an_order_that_no_agent_carries_out_is_refused_with_its_field(
    change: dict[str, Any], why: str
) -> None:
    assert why in order_refusal(ORDER._replace(**change), [])


def test_a_valid_order_is_accepted_and_the_agent_has_a_fault_for_each_kind_of_the_registry() -> None:
    assert order_refusal(ORDER, []) == order_refusal(ORDER._replace(id="my.run-b0-a-1"), []) == ""
    kinds = {one.kind for one in PERTURBATIONS if Backend.AGENT in one.backends}
    assert set(KINDS) == {kind.value for kind in kinds - {PerturbationKind.KILL_POD}}


def test_two_faults_never_change_the_same_resource() -> None:
    assert "f-1 (SlowRank)" in order_refusal(ORDER._replace(id="f-2"), [ORDER])
    assert "f-1 (SlowRank)" in order_refusal(ORDER._replace(id="f-2", kind="SlowNode", pod_uid="b"), [ORDER])
    link = ORDER._replace(id="f-2", kind="LinkLimit", magnitude=10.0)
    assert order_refusal(link, [ORDER]) == ""
    assert order_refusal(ORDER._replace(id="f-2", pod_uid="b"), [ORDER]) == ""
    many = [link._replace(id=f"f-{n}", pod_uid=f"u{n}") for n in range(MAX_ACTIVE)]
    assert "the most that it may have" in order_refusal(ORDER, many)


def test_the_node_may_run_only_the_experiments_pods() -> None:
    own = pod("a", "job-1")
    assert target_refusal(ORDER, {"a": own, "b": pod("b", "job-2"), "new": pod("new", "")}) == ""
    assert target_refusal(ORDER, {"a": pod("a", "job-1.rollout.0"), "b": pod("b", "job-2.web.3")}) == ""
    assert "pod a is not on this node" in target_refusal(ORDER, {})
    assert "has no job yet" in target_refusal(ORDER, {"a": pod("a", "")})
    assert "not to the job of the order" in target_refusal(ORDER, {"a": pod("a", "other")})
    assert "not to the job of the order" in target_refusal(ORDER._replace(job_uids=("job-2",)), {"a": own})
    why = target_refusal(ORDER, {"a": own, "b": pod("b", "foreign")})
    assert "pod b of job default/foreign runs on this node too" in why


def test_a_record_is_on_disk_before_save_returns_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    records, one = Records(tmp_path / "faults", KINDS), Record(ORDER, {"quotas": {"p": "-1"}})
    records.save(one)
    assert synced == ["f-1.new", "faults"], "the file before its name, then the name"
    later = Records(tmp_path / "faults", KINDS)
    later.load()
    assert later.all() == [one]


@pytest.mark.parametrize(
    "content", ["", "{}", json.dumps({"order": ["f-2", "a"], "undo": {}}), "[]", '{"order": "text"}']
)
def test_a_record_that_cannot_be_read_is_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / "f-1.json").write_text(content)
    records = Records(tmp_path, KINDS)
    records.load()
    assert (records.all(), [*tmp_path.iterdir()]) == ([], [])


def test_the_oldest_fault_that_is_over_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MAX_RECORDS", 2)
    records = Records(tmp_path, KINDS)
    records.save(Record(ORDER._replace(id="active")))
    for name in ("first", "second"):
        records.save(Record(ORDER._replace(id=name), undone_ms=1))
    assert [one.order.id for one in records.all()] == ["active", "second"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["active.json", "second.json"]
