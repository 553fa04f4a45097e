"""Tests of batch-aware fair queueing: shares, credit of idle tasks, work conservation, order."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.engines.fmplex.fair_queue import FairQueue
from convoy_workloads.engines.fmplex.task_queue import Item

MOST = 8
ALPHA = {"short": 0.004, "long": 0.010}
BETA = {"short": 0.001, "long": 0.005}


def cost(key: Hashable, size: int) -> float:
    return ALPHA[str(key)] + BETA[str(key)] * size


DEAREST = max(cost(key, 1) for key in ALPHA)
"""Maximum charge of one item."""
BATCH = max(cost(key, MOST) for key in ALPHA)


class Bench:
    """A queue, with a number for each item."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.queue = FairQueue(MOST, cost)
        self.weights = weights
        self.numbers = itertools.count()
        for task, weight in weights.items():
            self.queue.attach(task, weight)

    def add(self, task: str, key: str = "short", count: int = 1) -> list[Item]:
        found = []
        for _ in range(count):
            number = next(self.numbers)
            found.append(Item(task, key, number, 0, float(number)))
            self.queue.add(found[-1])
        return found

    def normal(self, task: str) -> float:
        """Return the service of a task divided by its weight."""
        return self.queue.flow(task).service / self.weights[task]


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=5),
    mixes=st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=5, max_size=5),
    seed=st.integers(0, 1000),
)
def test_backlogged_tasks_get_service_in_proportion_to_their_weights(
    weights: list[float], mixes: list[float], seed: int
) -> None:
    drawn = random.Random(seed)
    bench = Bench({f"t{number}": weight for number, weight in enumerate(weights)})
    spent = 0.0
    for _ in range(60):
        for task, mix in zip(bench.weights, mixes, strict=False):
            while bench.queue.waiting(task) < 3 * MOST:
                bench.add(task, "long" if drawn.random() < mix else "short")
        batch = bench.queue.next_batch()
        spent += cost(batch[0].key, len(batch))
        for one, other in itertools.combinations(bench.weights, 2):
            lightest = min(bench.weights[one], bench.weights[other])
            bound = DEAREST / bench.weights[one] + DEAREST / bench.weights[other] + BATCH / lightest
            assert abs(bench.normal(one) - bench.normal(other)) <= bound
    assert sum(bench.queue.flow(task).service for task in bench.weights) == pytest.approx(spent)


def test_weights_decide_the_shares() -> None:
    bench = Bench({"heavy": 3.0, "light": 1.0})
    served: Counter[str] = Counter()
    for _ in range(100):
        for task in bench.weights:
            bench.add(task, count=MOST)
        served.update(item.task for item in bench.queue.next_batch())
    assert served["heavy"] == pytest.approx(3 * served["light"], abs=MOST)


def test_a_batch_has_requests_of_several_tasks() -> None:
    bench = Bench({"a": 1.0, "b": 1.0, "c": 1.0})
    for task in bench.weights:
        bench.add(task, count=2)
    assert Counter(item.task for item in bench.queue.next_batch()) == {"a": 2, "b": 2, "c": 2}


def test_an_idle_task_earns_no_credit() -> None:
    bench = Bench({"busy": 1.0, "idle": 1.0})
    bench.add("busy", count=500)
    for _ in range(50):
        bench.queue.next_batch()
    before = bench.queue.flow("busy").service
    bench.add("idle", count=500)
    bench.add("busy", count=500)
    for _ in range(20):
        bench.queue.next_batch()
    gained = bench.queue.flow("busy").service - before
    assert abs(gained - bench.queue.flow("idle").service) <= 2 * DEAREST + BATCH


def test_tasks_start_a_busy_period_with_equal_tags() -> None:
    bench = Bench({"before": 1.0, "other": 1.0})
    bench.add("before", count=40)
    while bench.queue.next_batch():
        pass
    bench.add("before", count=MOST)
    bench.add("other", count=MOST)
    assert Counter(item.task for item in bench.queue.next_batch()) == {"before": 4, "other": 4}


def test_a_newcomer_is_in_the_next_batch_despite_a_flood() -> None:
    bench = Bench({"flood": 1.0, "victim": 1.0})
    bench.add("flood", count=10_000)
    for _ in range(100):
        bench.queue.next_batch()
    item = bench.add("victim")[0]
    assert item in bench.queue.next_batch()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["short", "long"])), max_size=60))
def test_the_queue_is_work_conserving_and_loses_nothing(items: list[tuple[str, str]]) -> None:
    bench = Bench({"a": 1.0, "b": 4.0, "c": 0.5})
    added = [item for task, key in items for item in bench.add(task, key)]
    served: list[Item] = []
    while bench.queue.waiting():
        keys = {item.key for item in added} - {None}
        left = bench.queue.waiting()
        batch = bench.queue.next_batch()
        assert batch
        assert len({item.key for item in batch}) == 1
        if len(keys) == 1:
            assert len(batch) == min(left, MOST)
        served += batch
    assert sorted(item.call for item in served) == sorted(item.call for item in added)
    assert bench.queue.next_batch() == []


def test_at_most_a_batch_overtakes_the_oldest_request_of_a_task() -> None:
    bench = Bench({"head": 4.0, "mixed": 1.0})
    long = bench.add("mixed", "long")[0]
    overtaken = 0
    for _ in range(100):
        bench.add("mixed", count=MOST)
        bench.add("head", count=2)
        batch = bench.queue.next_batch()
        if long in batch:
            break
        overtaken += sum(item.task == "mixed" for item in batch)
    else:
        pytest.fail("the long request starves")
    assert 0 < overtaken <= MOST


def test_requests_with_equal_keys_keep_their_order_within_a_task() -> None:
    bench = Bench({"a": 1.0})
    added = bench.add("a", count=20)
    assert [item for _ in range(3) for item in bench.queue.next_batch()] == added


def test_dropped_requests_are_not_served_and_cost_nothing() -> None:
    bench = Bench({"a": 1.0})
    first, second = bench.add("a", count=2)
    assert bench.queue.drop("a", first.call) == 1
    assert bench.queue.drop("a", first.call) == 0
    assert bench.queue.next_batch() == [second]
    assert bench.queue.flow("a").service == cost("short", 1)


def test_attach_and_detach_keep_the_other_tasks() -> None:
    bench = Bench({"a": 1.0})
    bench.add("a", count=100)
    for _ in range(5):
        bench.queue.next_batch()
    bench.queue.attach("late", 1.0)
    bench.weights["late"] = 1.0
    bench.add("late", count=4)
    with pytest.raises(ValueError, match="items of task 'late' wait"):
        bench.queue.detach("late")
    assert Counter(item.task for item in bench.queue.next_batch()) == {"a": 4, "late": 4}
    bench.queue.detach("late")
    assert bench.queue.waiting() == 100 - 5 * MOST - 4


def test_the_oldest_request_is_known() -> None:
    bench = Bench({"a": 1.0, "b": 1.0})
    assert bench.queue.oldest() is None
    item = bench.add("b", "long")[0]
    bench.add("a", "short")
    assert bench.queue.oldest() is item


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_is_positive(weight: float) -> None:
    queue = FairQueue(MOST, cost)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.attach("a", weight)
    queue.attach("a", 1.0)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.set_weight("a", weight)
    with pytest.raises(ValueError, match="task 'a' exists"):
        queue.attach("a", 1.0)
