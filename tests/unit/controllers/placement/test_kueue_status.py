"""Tests of the changes that a Workload's owner makes to its status."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.placement.kueue_objects import BEFORE, NOW, admitted, condition, evicted

from convoy_controllers.placement.kueue import status as statuses
from convoy_controllers.placement.kueue.admission import Stage, admission
from convoy_controllers.placement.kueue.admission import condition as condition_of

Raw = dict[str, Any]


def of(status: Raw, kind: str) -> tuple[str, str]:
    found = condition_of({"status": status}, kind)
    return found.get("status", ""), found.get("reason", "")


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", ("True", "Preempted")),
        ("NodeFailures", ("True", "NodeFailures")),
        ("PodsReadyTimeout", ("False", "PodsReadyTimeout")),
        ("ClusterQueueStopped", ("False", "ClusterQueueStopped")),
        ("Deactivated", ("False", "Deactivated")),
        ("DeactivatedDueToRequeuingLimitExceeded", ("False", "Deactivated")),
    ],
)
def test_a_cleared_reservation_changes_all_its_parts(reason: str, requeued: tuple[str, str]) -> None:
    found = evicted(reason, condition("PodsReady", "True", "Started"))
    raw = {**found.raw, "status": {**found.status, "reclaimablePods": [{"name": "worker", "count": 1}]}}
    status = statuses.cleared(raw, NOW)
    assert "admission" not in status
    assert "reclaimablePods" not in status
    assert of(status, "QuotaReserved") == ("False", "Pending")
    assert of(status, "Admitted") == ("False", "NoReservation")
    assert of(status, "PodsReady") == ("False", "WaitForStart")
    assert of(status, "Requeued") == requeued
    assert of(status, "Evicted") == ("True", reason), "Kueue's own conditions stay"
    assert admission({**raw, "status": status}).stage is Stage.WAITING
    for one in status["conditions"]:
        assert set(one) >= {"type", "status", "reason", "message", "lastTransitionTime"}


@pytest.mark.parametrize(
    ("stored", "ready", "wanted"),
    [
        (None, False, ("False", "WaitForStart")),
        (None, True, ("True", "Started")),
        (("False", "WaitForStart"), True, ("True", "Started")),
        (("True", "Started"), False, ("False", "WaitForRecovery")),
        (("False", "WaitForRecovery"), False, ("False", "WaitForRecovery")),
        (("False", "WaitForRecovery"), True, ("True", "Recovered")),
        (("True", "Recovered"), True, ("True", "Recovered")),
        (("True", "Recovered"), False, ("False", "WaitForRecovery")),
    ],
)
def test_pods_ready_says_whether_the_pods_were_ready_before(
    stored: tuple[str, str] | None, ready: bool, wanted: tuple[str, str]
) -> None:
    found = admitted(2, *([condition("PodsReady", *stored)] if stored else []))
    status = statuses.with_ready(found.raw, ready, NOW)
    assert of(status, "PodsReady") == wanted
    changed = stored != wanted
    assert (status != found.status) is changed, "an equal condition is not written again"
    if changed and stored and stored[0] == wanted[0]:
        assert condition_of({"status": status}, "PodsReady")["lastTransitionTime"] == BEFORE


def test_reclaimable_pods_never_become_fewer() -> None:
    raw = admitted(4).raw
    first = statuses.with_reclaimable(raw, {"worker": 2})
    assert first["reclaimablePods"] == [{"name": "worker", "count": 2}]
    later = statuses.with_reclaimable({**raw, "status": first}, {"worker": 1})
    assert later == first
    assert statuses.with_reclaimable(raw, {"worker": 0}) == raw["status"]


@pytest.mark.parametrize(("succeeded", "reason"), [(True, "Succeeded"), (False, "Failed")])
def test_the_end_of_a_job_is_written_once(succeeded: bool, reason: str) -> None:
    raw = admitted().raw
    status = statuses.finished(raw, succeeded, "x" * 40_000, NOW)
    assert of(status, "Finished") == ("True", reason)
    assert len(condition_of({"status": status}, "Finished")["message"]) == statuses.MAX_MESSAGE
    again = {**raw, "status": status}
    assert statuses.finished(again, not succeeded, "other", NOW) == status
    assert admission(again).stage is Stage.FINISHED
