"""Tests of the deadlines of notices, and of the conditions and ids of Azure."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.controllers.spot_cluster import START, SpotCluster

from convoy_controllers.cached import Announcement
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool_status import NoticeSource, NoticeState

AWS = NoticeSource.AWS
ITN = {"key": "aws-node-termination-handler/spot-itn", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def cluster() -> SpotCluster:
    found = SpotCluster()
    for name in ("a", "b"):
        found.add_node(name)
    found.step()
    return found


def test_a_real_deadline_replaces_an_assumed_one(cluster: SpotCluster) -> None:
    cluster.change("a", taints=(ITN,))
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=15)
    cluster.notify("a", AWS, seconds=120)
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=120)
    cluster.wait(60)
    assert cluster.notice("a").state is NoticeState.NOTICED


def test_a_deadline_far_away_counts_as_an_hour(cluster: SpotCluster) -> None:
    cluster.notify("a", seconds=1e11)
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(hours=1)


@pytest.mark.parametrize("first", ["taint", "report", "both"])
def test_a_program_cannot_postpone_the_end_of_a_node(cluster: SpotCluster, first: str) -> None:
    if first != "report":
        cluster.change("a", taints=(ITN,))
    if first != "taint":
        cluster.notify("a", NoticeSource.RAY, seconds=3000)
    cluster.step()
    cluster.change("a", taints=(ITN,))
    if first == "taint":
        cluster.notify("a", NoticeSource.RAY, seconds=3000)
    cluster.step()
    end = cluster.now + timedelta(seconds=15)
    assert (cluster.notice("a").deadline, cluster.notice("a").assumed) == (end, True)
    cluster.change("a", taints=())
    cluster.step()
    assert cluster.notice("a").deadline == end
    cluster.notify("a", AWS, seconds=120)
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=120)


def test_a_program_may_bring_the_end_of_a_node_forward(cluster: SpotCluster) -> None:
    cluster.change("a", taints=(ITN,))
    cluster.step()
    cluster.notify("a", NoticeSource.RAY, seconds=8)
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=8)


def test_a_mark_without_a_time_does_not_shorten_the_deadline_of_the_provider(cluster: SpotCluster) -> None:
    cluster.notify("a", AWS, seconds=120)
    cluster.step()
    cluster.change("a", taints=(ITN,))
    cluster.signals.clear()
    cluster.step()
    assert cluster.notice("a").deadline == cluster.now + timedelta(seconds=120)


def test_ids_of_azure_ignore_case(cluster: SpotCluster) -> None:
    group, machine = (
        "azure:///subscriptions/s/resourceGroups/",
        "/virtualMachineScaleSets/set/virtualMachines/4",
    )
    cluster.change("a", provider_id=f"{group}mc_team_west{machine}")
    cluster.change("b", provider_id="fake://B")
    for provider_id in (f"{group}MC_Team_west{machine}", "fake://b"):
        cluster.signals.append(
            Notice(NoticeSource.AZURE, provider_id=provider_id, deadline=cluster.now.timestamp() + 30)
        )
    cluster.step()
    assert [one.node for one in cluster.status.notices] == ["a"]


@pytest.mark.parametrize(
    ("kind", "message", "found", "seconds"),
    [
        ("VMEventScheduled", "Preempt Scheduled: Thu, 01 Jan 2026 00:00:40 GMT. See x", "Preemption", 40),
        ("PreemptionScheduled", "Preempt Scheduled: Thu, 1 Jan 2026 00:00:40 GMT. See x", "Preemption", 40),
        ("PreemptionScheduled", "Preempt Started. See x", "Preemption", 15),
        ("PreemptionScheduled", "Preempt Scheduled: soon. See x", "Preemption", 15),
        ("PreemptionScheduled", "", "Preemption", 15),
        ("PreemptionScheduled", "SpotRebalanceRecommendation Advisory. See x", "Rebalance", None),
        ("VMEventScheduled", "Terminate Scheduled: Thu, 01 Jan 2026 00:00:40 GMT. See x", "Removal", 40),
        ("VMEventScheduled", "Freeze Scheduled: Thu, 01 Jan 2026 00:00:40 GMT. See x", None, None),
    ],
)
def test_conditions_of_azure_name_the_event_and_its_time(
    cluster: SpotCluster, kind: str, message: str, found: str | None, seconds: int | None
) -> None:
    cluster.change("a", announcements=(Announcement(kind, message),))
    cluster.step()
    ends = [
        (one.kind, one.deadline and (one.deadline - START).total_seconds()) for one in cluster.status.notices
    ]
    assert ends == ([] if found is None else [(found, seconds)])
