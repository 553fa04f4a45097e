"""Tests of the reports of a fake pod. They must equal those of a real launcher and its agent."""

from __future__ import annotations

from e2e.bench.rig.fake_pod import FakePod

from convoy_agents.wire import hub_pb2 as wire


def pod() -> FakePod:
    return FakePod(uid="u", namespace="n", name="p", node="node", job="j")


def assignment(incarnation: int) -> wire.Assignment:
    member = wire.Member(slot=0, pod_uid="u", node="node", peer_address="node:1")
    return wire.Assignment(pod_uid="u", incarnation=incarnation, rank_offset=3, processes=2, members=[member])


def test_before_the_first_assignment_only_the_launcher_is_reported():
    report = pod().report()
    assert report.launcher_connected
    assert (report.incarnation, report.master_port, len(report.ranks)) == (0, 0, 0)


def test_a_port_is_picked_for_the_requested_incarnation():
    one = pod()
    one.pick_port(wire.PickPort(pod_uid="u", incarnation=4))
    one.pick_port(wire.PickPort(pod_uid="u", incarnation=3))
    assert one.report().port_incarnation == 4
    assert one.report().master_port


def test_ranks_run_after_an_assignment_and_ignore_an_older_incarnation():
    one = pod()
    one.assign(assignment(2), frozenset({"node"}), now=1.0)
    one.assign(assignment(1), frozenset(), now=2.0)
    report = one.report()
    assert report.incarnation == 2
    assert [rank.rank for rank in report.ranks] == [3, 4]
    assert {rank.state for rank in report.ranks} == {wire.RankReport.RUNNING}
    assert [(one.node, one.peer_address) for one in report.peers] == [("node", "node:1")]
    assert not report.ranks[0].HasField("progress")


def test_a_report_changes_only_with_a_step():
    one = pod()
    one.assign(assignment(1), frozenset({"node"}), now=1.0)
    assert one.report() == one.report()
    one.advance(now=2.0)
    first = one.report()
    assert first.ranks[0].progress.step == 1
    one.advance(now=3.0)
    assert one.report() != first
