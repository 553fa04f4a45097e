"""Tests of the state of a gang: what its PodGroup and pods show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.controllers.placement.gang_objects import COSCHEDULING, NATIVE, V1BETA1, VOLCANO, scheduled

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.gang_state import (
    IGNORED_SECONDS,
    UNSEEN_SECONDS,
    GangReport,
    apply,
    chooses_domain,
    find,
    in_use,
    live,
    refused,
    report,
)
from convoy_controllers.placement.gangs.backend import Backend, Gang, GangGroup
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.reasons.catalogue import Reasons

START = datetime(2026, 1, 1, tzinfo=UTC)
GANG = Gang("big-3f2a1c", {}, 3, {"worker": 3})


def pod(number: int, node: str | None = None, **facts: Any) -> PodView:
    """A pod that was created at the start."""
    base = {"created": START.timestamp(), "judged": node is not None}
    return PodView(f"big-worker-{number}", f"uid-{number}", "Pending", node, **{**base, **facts})


def state(
    pods: list[PodView],
    group: dict[str, Any] | None = None,
    backend: Backend = NATIVE,
    after: float = 0.0,
    wanted: int = 3,
) -> GangReport:
    now = START + timedelta(seconds=after)
    return report(GangGroup(backend, GANG), group, pods, wanted, scheduler="mine", now=now)


BOUND = [pod(number, f"node-{number}") for number in range(3)]
FREE = [pod(number) for number in range(3)]
JUDGED = [pod(number, judged=True, unschedulable="0/4 nodes are available") for number in range(3)]
PLACED = {"status": scheduled()}
FRESH = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
"""A PodGroup of the start, without conditions."""


def test_a_gang_whose_pods_all_have_nodes_is_placed() -> None:
    found = state(BOUND, PLACED)
    assert (found.holds, found.reason, found.wait_seconds) == (True, Reasons.GANG_PLACED, None)
    assert found.message == "PodGroup big-3f2a1c (Native): all 3 pods have nodes"
    assert found.warning is None


def test_a_gang_that_lost_a_pod_waits_although_its_podgroup_says_placed() -> None:
    found = state(BOUND[:2], PLACED)
    assert (found.holds, found.reason) == (False, Reasons.GANG_WAITING)
    assert "2 of 3 pods exist" in found.message


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({}, "0/4 nodes are available"),
        (
            {"status": scheduled("False", "minCount (3) cannot be satisfied")},
            "minCount (3) cannot be satisfied",
        ),
    ],
)
def test_a_waiting_gang_has_the_words_of_the_scheduler(group: dict[str, Any], why: str) -> None:
    found = state(JUDGED, group, after=UNSEEN_SECONDS + 1)
    assert found.reason is Reasons.GANG_WAITING and why in found.message and "3 pods at once" in found.message


def test_a_gang_without_a_podgroup_waits() -> None:
    found = state([])
    assert found.reason is Reasons.GANG_WAITING and "0 of 3 pods exist" in found.message


# A scheduler that ignores gangs


def test_a_podgroup_without_condition_is_reported_some_seconds_after_the_pods_got_nodes() -> None:
    early = state(BOUND, FRESH, after=IGNORED_SECONDS - 4)
    assert (early.holds, early.reason, early.wait_seconds) == (True, Reasons.GANG_PLACED, 4.0)
    late = state(BOUND, FRESH, after=IGNORED_SECONDS)
    assert (late.holds, late.reason, late.wait_seconds) == (False, Reasons.GANG_IGNORED, None)
    assert late.warning is not None and "feature gate" in late.message


def test_a_podgroup_that_does_not_exist_is_not_ignored() -> None:
    found = state(BOUND, None, after=IGNORED_SECONDS + 1)
    assert (found.holds, found.reason, found.wait_seconds) == (True, Reasons.GANG_PLACED, None)


def test_a_podgroup_that_is_younger_than_its_pods_is_not_ignored() -> None:
    later = {"metadata": {"creationTimestamp": "2026-01-01T01:00:00Z"}}
    assert state(BOUND, later, after=4000).reason is Reasons.GANG_PLACED


def test_the_seconds_count_from_the_youngest_pod() -> None:
    pods = [*BOUND[:2], pod(2, "node-2", started=START.timestamp() + 100)]
    assert state(pods, FRESH, after=104).wait_seconds == 6.0
    assert state(pods, FRESH, after=110).reason is Reasons.GANG_IGNORED


def test_a_clock_that_is_behind_does_not_make_the_wait_longer() -> None:
    assert state(BOUND, FRESH, after=-500).wait_seconds == IGNORED_SECONDS


@pytest.mark.parametrize("seconds", [0, 20, 2000])
def test_a_backend_whose_state_another_controller_writes_may_have_none(seconds: float) -> None:
    found = state(BOUND, FRESH, COSCHEDULING, after=seconds)
    assert (found.holds, found.reason, found.wait_seconds) == (True, Reasons.GANG_PLACED, None)


# A scheduler that does not run


def test_pods_that_no_scheduler_has_tried_are_reported_after_30_seconds() -> None:
    early = state(FREE, {}, VOLCANO, after=UNSEEN_SECONDS - 1)
    assert (early.reason, early.wait_seconds) == (Reasons.GANG_WAITING, 1.0)
    late = state(FREE, {}, VOLCANO, after=UNSEEN_SECONDS)
    assert (late.holds, late.reason, late.wait_seconds) == (False, Reasons.SCHEDULER_MISSING, None)
    assert "no scheduler named 'mine' has looked at pod big-worker-0 for 30 s" in late.message
    assert "Volcano is in use" in late.message


def test_a_scheduler_that_holds_back_a_gang_in_part_is_not_missing() -> None:
    assert state(FREE[:2], {}, after=UNSEEN_SECONDS).reason is Reasons.GANG_WAITING


@pytest.mark.parametrize("sign", [pod(0, judged=True), BOUND[0]])
def test_a_scheduler_that_has_tried_one_pod_is_not_missing(sign: PodView) -> None:
    assert state([sign, *FREE[1:]], PLACED, after=600).reason is Reasons.GANG_WAITING


# Parts


def test_a_podgroup_is_applied_only_while_its_api_is_served() -> None:
    found = GangGroup(NATIVE, GANG)
    [child] = apply(found, {V1BETA1})
    assert (child.resource, child.name) == (V1BETA1, "big-3f2a1c")
    assert apply(found, ()) == []


def test_a_refused_podgroup_is_reported() -> None:
    wrong = refused(GangGroup(NATIVE, GANG), {"big-3f2a1c": Refusal("no PriorityClass with name high")})
    assert wrong is not None and wrong.reason is Reasons.GANG_REFUSED
    assert "refused PodGroup big-3f2a1c: no PriorityClass with name high; correct" in wrong.message
    assert refused(GangGroup(NATIVE, GANG), {"other": Refusal("no")}) is None


def test_the_scheduler_chooses_the_domain_only_if_the_api_server_keeps_the_key() -> None:
    found = GangGroup(NATIVE, GANG)
    assert chooses_domain(found, {"spec": {"schedulingConstraints": {"topology": [{"key": "rack"}]}}})
    assert not chooses_domain(found, {"spec": {}})
    assert not chooses_domain(found, None)


def test_only_pods_that_are_younger_than_a_podgroup_are_in_it() -> None:
    group = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert in_use(group, [pod(0)])
    assert in_use(group, [pod(0, created=0.0), pod(1, created=START.timestamp() + 1)])
    assert not in_use(group, [pod(0, created=START.timestamp() - 1)])
    assert not in_use(group, []) and not in_use(None, [pod(0)]) and not in_use({}, [pod(0)])


def test_ended_and_leaving_pods_are_not_live() -> None:
    gone = PodView("a", "1", "Failed"), PodView("b", "2", "Succeeded"), pod(3, deleting=True)
    assert live([*gone, pod(4)]) == [pod(4)]


def test_a_podgroup_is_found_by_its_name() -> None:
    groups = [CachedObject("ml", name, name, 1, {"metadata": {"name": name}}) for name in ("a", "b")]
    assert find(groups, "b") == {"metadata": {"name": "b"}} and find(groups, "c") is None
