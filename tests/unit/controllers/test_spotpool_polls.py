"""Tests of the condition about agents that do not read the pool's metadata service."""

from __future__ import annotations

from tests.unit.controllers.spot_cluster import SpotCluster, make_pool

from convoy_crds.spotpool_status import NoticeSource


def message(cluster: SpotCluster) -> str:
    return next(one.message for one in cluster.status.conditions if one.type == "NoticesReliable")


def test_the_condition_says_on_how_many_nodes_the_service_is_not_read_and_why() -> None:
    cluster = SpotCluster(pool=make_pool(notice={"metadata": "AWS"}))
    for name in ("a", "b", "c"):
        cluster.add_node(name)
    cluster.step()
    assert cluster.condition("NoticesReliable") == ("True", "NoticesReliable")
    cluster.unread = {"c": "status 503", "b": "no connection"}
    cluster.step()
    assert cluster.condition("NoticesReliable") == ("False", "SourceNotPolled")
    assert "2 of 3 nodes" in message(cluster) and "AWS" in message(cluster)
    assert message(cluster).endswith("node b: no connection")
    cluster.wait(600)
    assert cluster.events.count("SourceNotPolled") == 1
    cluster.unread = {}
    cluster.step()
    assert cluster.condition("NoticesReliable")[0] == "True"


def test_a_service_that_is_not_read_comes_before_a_wrong_notice() -> None:
    cluster = SpotCluster(pool=make_pool(notice={"metadata": "AWS"}))
    cluster.add_node("a")
    cluster.notify("a", NoticeSource.AWS, seconds=10)
    cluster.wait(90)
    assert cluster.condition("NoticesReliable")[1] == "SpotFalseNotice"
    cluster.unread = {"a": "status 503"}
    cluster.step()
    assert cluster.condition("NoticesReliable")[1] == "SourceNotPolled"
