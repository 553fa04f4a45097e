"""Tests of the orders with which the bench compares fair queueing."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from convoy_workloads.engines.fmplex.orders import ORDERS, Order
from convoy_workloads.engines.fmplex.task_queue import Item, TaskQueue


def cost(key: Hashable, size: int) -> float:
    return 1.0 + size


def filled(order: Order) -> TaskQueue:
    """Return a queue with five items of a, then two of b, then one of c with another key."""
    queue = ORDERS[order](4, cost)
    for task in "abc":
        queue.attach(task, 1.0)
    for number, task in enumerate("aaaaabbc"):
        queue.add(Item(task, "long" if task == "c" else "short", number, 0, float(number)))
    return queue


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("Arrival", ["aaaa", "abb", "c"]),
        ("PerTask", ["aaaa", "bb", "c", "a"]),
        ("Fair", ["aabb", "c", "aaa"]),
    ],
)
def test_each_order_serves_everything_in_its_own_batches(order: Order, expected: list[str]) -> None:
    queue = filled(order)
    found = []
    while batch := queue.next_batch():
        found.append("".join(sorted(item.task for item in batch)))
    assert found == expected
    total = sum(1.0 + len(one) for one in expected)
    assert sum(flow.service for flow in queue.flows()) == pytest.approx(total)
    assert queue.waiting() == 0
