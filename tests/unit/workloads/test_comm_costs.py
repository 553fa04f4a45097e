"""Tests of the times and bytes of operations on emulated links."""

from __future__ import annotations

import pytest

from convoy_workloads.comm import costs
from convoy_workloads.comm.costs import Cost
from convoy_workloads.comm.links import Link, Links
from convoy_workloads.comm.pacing import Pacer

EVEN = Links(Link(1000.0))
ONE_SLOW = Links(Link(1000.0, 0.5), {(1, 2): Link(100.0, 2.0)})
FOUR = (0, 1, 2, 3)


def test_a_ring_sends_each_part_twice_around() -> None:
    cost = costs.all_reduce(EVEN, FOUR, 4000)
    assert cost.seconds == pytest.approx(6 * 1.0)
    assert cost.sent == dict.fromkeys([(0, 1), (1, 2), (2, 3), (3, 0)], 6000)
    assert costs.all_gather(EVEN, FOUR, 1000).seconds == pytest.approx(3.0)
    assert costs.all_reduce(EVEN, (5,), 4000) == Cost()


def test_the_slowest_link_of_a_ring_decides() -> None:
    assert costs.all_reduce(ONE_SLOW, FOUR, 4000).seconds == pytest.approx(6 * (2.0 + 10.0))
    assert costs.all_reduce(ONE_SLOW, (0, 1, 3), 3000).seconds == pytest.approx(4 * 1.5), "not in this group"


def test_other_operations() -> None:
    assert costs.broadcast(ONE_SLOW, FOUR, 2, 1000).seconds == pytest.approx(1.0 + 3 * 0.5)
    assert costs.broadcast(ONE_SLOW, FOUR, 0, 1000).seconds == pytest.approx(10.0 + 0.5 + 2.0 + 0.5)
    assert costs.scatter(ONE_SLOW, FOUR, 1, 100).seconds == pytest.approx(3.0)
    assert costs.gather(ONE_SLOW, FOUR, 1, 100).sent == {(0, 1): 100, (2, 1): 100, (3, 1): 100}
    exchange = costs.all_to_all(ONE_SLOW, (0, 1, 2), 100)
    assert exchange.seconds == pytest.approx((2.0 + 1.0) + (0.5 + 0.1))
    assert len(exchange.sent) == 6
    assert costs.point_to_point(ONE_SLOW, 1, 2, 100) == Cost(3.0, {(1, 2): 100})
    assert costs.point_to_point(ONE_SLOW, 2, 1, 100) == Cost(0.6, {(2, 1): 100}), "the other direction"


def test_operations_share_the_links_and_the_accounts_are_exact() -> None:
    now, slept = 10.0, list[float]()
    pacer = Pacer(lambda: now, slept.append)
    ends = [pacer.reserve(Cost(2.0, {(0, 1): 5})), pacer.reserve(Cost(1.0, {(0, 1): 7}))]
    assert ends == [12.0, 13.0]
    now = 12.5
    for end in ends:
        pacer.wait_until(end)
    assert slept == [0.5]
    now = 20.0
    assert pacer.reserve(Cost(1.0)) == 21.0, "an idle link is free at once"
    assert (pacer.seconds, pacer.operations, pacer.sent) == (4.0, 3, {(0, 1): 12})


@pytest.mark.parametrize(
    "link", [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, -1.0), (1.0, float("inf"))]
)
def test_an_impossible_link_is_refused(link: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"bytes_per_second|latency_seconds"):
        Link(*link)
