"""Tests of notices: merged over sources, wrong, withdrawn, late, and about nodes that have left."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.controllers.spot_cluster import SpotCluster, make_pool

from convoy_controllers.cached import Announcement
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool_status import MAX_PAST_NOTICES, NoticeKind, NoticeSource, NoticeState

AWS, TAINT = NoticeSource.AWS, NoticeSource.TAINT
ITN = {"key": "aws-node-termination-handler/spot-itn", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def cluster() -> SpotCluster:
    found = SpotCluster()
    found.claim(2)
    for name in ("a", "b"):
        found.add_node(name)
        found.add_pod(f"pod-{name}", name)
    found.step()
    return found


def test_a_pod_works_on_until_shortly_before_the_deadline(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=60)
    cluster.step()
    assert cluster.notice("a").state is NoticeState.NOTICED
    assert cluster.events == ["SpotNotice"]
    cluster.wait(54)
    assert not cluster.evicted
    cluster.wait(1)
    assert cluster.evicted == ["pod-a"]
    assert (cluster.status.nodes.draining, cluster.status.nodes.ready) == (1, 1)


def test_the_next_plan_comes_when_the_pods_must_leave(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=9)
    assert cluster.step().requeue_after == 4


def test_a_notice_that_is_too_short_drains_at_once(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=3)
    cluster.step()
    assert cluster.evicted == ["pod-a"]


def test_the_earliest_deadline_wins_and_repeats_have_no_effect(cluster: SpotCluster) -> None:
    cluster.notify("a", AWS, seconds=120)
    cluster.step()
    first = cluster.notice("a")
    cluster.notify("a", NoticeSource.RAY, seconds=500)
    cluster.notify("a", NoticeSource.RAY, seconds=400)
    cluster.step()
    cluster.step()
    again = cluster.notice("a")
    assert (again.deadline, again.at, again.repeats) == (first.deadline, first.at, 1)
    cluster.notify("a", NoticeSource.SIGTERM, seconds=20)
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=20)
    assert cluster.notice("a").sources == [AWS, NoticeSource.SIGTERM, NoticeSource.RAY]
    assert cluster.events == ["SpotNotice"]


def test_taints_do_not_count_if_the_pool_forbids_it() -> None:
    cluster = SpotCluster(pool=make_pool(notice={"taints": False}))
    cluster.add_node("a")
    cluster.change("a", taints=(ITN,))
    cluster.step()
    assert cluster.status.notices == []


def test_a_wrong_notice_is_closed_until_its_source_gives_another(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=10)
    cluster.wait(80)
    assert cluster.notice("a").state is NoticeState.FALSE_ALARM
    assert cluster.status.preemptions.false_alarms == 1
    assert cluster.condition("NoticesReliable") == ("False", "SpotFalseNotice")
    cluster.add_pod("pod-a", "a")
    cluster.wait(300)
    assert cluster.evicted == ["pod-a"]  # only before the deadline
    assert cluster.status.preemptions.false_alarms == 1
    cluster.signals.clear()
    cluster.step()
    cluster.notify("a", seconds=30)
    cluster.step()
    assert cluster.notice("a").state is NoticeState.NOTICED


def test_a_withdrawn_notice_reopens_the_node(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=200)
    cluster.step()
    cluster.signals.clear()
    cluster.wait(20)
    assert cluster.notice("a").state is NoticeState.NOTICED
    cluster.wait(20)
    assert cluster.notice("a").state is NoticeState.WITHDRAWN
    assert cluster.status.nodes.ready == 2


def test_a_new_leader_keeps_the_notice_until_agents_report_again(cluster: SpotCluster) -> None:
    notice = cluster.notify("a", seconds=200)
    cluster.step()
    cluster.signals.clear()
    cluster.restart_operator()
    cluster.wait(20)
    cluster.signals.append(notice)
    cluster.wait(60)
    assert cluster.notice("a").state is NoticeState.NOTICED
    assert cluster.notice("a").repeats == 0


@pytest.mark.parametrize(
    "wrong",
    [
        Notice(AWS, "a", "another-uid", deadline=1.0),
        Notice(AWS, "a", boot_id="an-earlier-boot", deadline=1.0),
        Notice(AWS, "unknown", deadline=1.0),
        Notice(AWS, "", provider_id="fake://unknown", deadline=1.0),
    ],
)
def test_a_notice_about_another_node_or_boot_is_ignored(cluster: SpotCluster, wrong: Notice) -> None:
    cluster.signals.append(wrong)
    cluster.step()
    assert cluster.status.notices == []


def test_a_notice_is_kept_for_an_instance_that_has_not_joined(cluster: SpotCluster) -> None:
    cluster.signals.append(Notice(AWS, provider_id="fake://c-5", deadline=cluster.now.timestamp() + 100))
    cluster.step()
    node = cluster.add_node("c")
    cluster.change("c", provider_id="fake://c-5")
    cluster.step()
    assert cluster.notice("c").node_uid == node.uid


def test_a_node_that_is_lost_after_its_notice_is_counted_once(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=40)
    cluster.step()
    cluster.wait(30)
    cluster.remove_node("a")
    cluster.wait(30)
    counts = cluster.status.preemptions
    assert (counts.total, counts.with_notice, counts.without_notice) == (1, 1, 0)
    assert cluster.notice("a").state is NoticeState.GONE
    assert cluster.status.notice_seconds is not None
    assert cluster.status.notice_seconds.min == 40
    assert cluster.status.nodes.gone == 1


def test_a_node_that_is_lost_without_notice_is_counted_once(cluster: SpotCluster) -> None:
    cluster.change("a", ready=False)
    cluster.wait(150)
    assert cluster.status.preemptions.without_notice == 1
    assert cluster.status.nodes.lost == 1
    cluster.remove_node("a")
    cluster.wait(30)
    assert cluster.status.preemptions.total == 1


def test_another_boot_ends_the_life_of_a_node(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=20)
    cluster.step()
    cluster.change("a", boot_id="next")
    cluster.step()
    assert cluster.status.preemptions.with_notice == 1
    assert cluster.status.nodes.ready == 2


def test_a_taint_that_outlives_a_reboot_says_nothing_about_the_next_boot(cluster: SpotCluster) -> None:
    cluster.change("a", taints=(ITN,))
    cluster.wait(20)
    assert cluster.evicted == ["pod-a"]
    cluster.change("a", boot_id="next")
    cluster.step()
    assert (cluster.status.preemptions.with_notice, cluster.status.nodes.ready) == (1, 2)
    cluster.add_pod("pod-a", "a")
    cluster.wait(300)
    assert cluster.evicted == ["pod-a"]  # only before the reboot
    assert cluster.status.preemptions.false_alarms == 0
    cluster.change("a", taints=())
    cluster.step()
    cluster.change("a", taints=(ITN,))
    cluster.wait(20)
    assert cluster.evicted == ["pod-a", "pod-a"]


def test_a_taint_of_the_next_boot_counts(cluster: SpotCluster) -> None:
    cluster.change("a", taints=(ITN,))
    cluster.wait(20)
    cluster.change("a", boot_id="next", taints=())
    cluster.step()
    cluster.change("a", taints=(ITN,))
    cluster.wait(20)
    assert [(one.boot_id, one.state) for one in cluster.status.notices if one.state.holds] == [
        ("next", NoticeState.DRAINING)
    ]


@pytest.mark.parametrize(
    ("facts", "removed"),
    [
        ({"taints": ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},)}, True),
        ({"taints": ({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},)}, True),
        ({"announcements": (Announcement("TerminateScheduled"),)}, True),
        ({"announcements": (Announcement("PreemptScheduled"),)}, False),
        ({"cordoned": True}, True),
        ({}, False),
    ],
)
def test_a_planned_removal_is_no_preemption(
    cluster: SpotCluster, facts: dict[str, object], removed: bool
) -> None:
    cluster.change("a", **facts)
    cluster.wait(300)
    cluster.remove_node("a")
    cluster.step()
    counts = cluster.status.preemptions
    assert (counts.removals, counts.total) == (int(removed), int(not removed))


@pytest.mark.parametrize(("rebalance", "closed"), [("Ignore", False), ("Cordon", True)])
def test_a_rebalance_warning_never_drains(rebalance: str, closed: bool) -> None:
    cluster = SpotCluster(pool=make_pool(notice={"rebalance": rebalance}))
    cluster.claim(1)
    cluster.add_node("a")
    cluster.add_pod("pod-a", "a")
    cluster.notify("a", seconds=None, kind=NoticeKind.REBALANCE)
    cluster.wait(600)
    assert cluster.notice("a").kind is NoticeKind.REBALANCE
    assert not cluster.evicted
    assert cluster.condition("SpotAvailable")[1] == ("AwaitingSpotNode" if closed else "SpotInUse")
    cluster.notify("a", seconds=30)
    cluster.step()
    assert cluster.notice("a").kind is NoticeKind.PREEMPTION
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=30)


def test_a_node_that_leaves_the_pool_is_not_lost(cluster: SpotCluster) -> None:
    cluster.change("a", labels={})
    cluster.step()
    assert cluster.status.preemptions.total == 0
    assert cluster.status.nodes.ready == 1


def test_all_nodes_may_get_notice_at_once() -> None:
    cluster = SpotCluster(pool=make_pool(maxNodes=200))
    cluster.claim(200)
    for number in range(150):
        cluster.add_node(str(number))
        cluster.add_pod(f"pod-{number}", str(number))
        cluster.notify(str(number), seconds=20)
    made = cluster.step()
    assert len(made.events) == 8
    assert cluster.status.nodes.noticed == 150
    assert cluster.step().status is None
    cluster.wait(20)
    assert len(cluster.evicted) == 150
    for number in range(150):
        cluster.remove_node(str(number))
    cluster.step()
    assert cluster.status.preemptions.with_notice == 150
    assert len(cluster.status.notices) == MAX_PAST_NOTICES
