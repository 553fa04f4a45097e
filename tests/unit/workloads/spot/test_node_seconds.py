"""Tests of the ledger of node-seconds: each second has one label and one price, and the sum is the bill."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.spot.ledger import node_seconds
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger

SPOT, ON_DEMAND = Capacity


@dataclass(frozen=True)
class Steps:
    """Prices that change at full hours: 1 per second in even hours, else 3."""

    factor: float = 1.0

    def cost(self, start: float, end: float, now: float) -> float:
        return self.factor * (_integral(end) - _integral(start))


def _integral(time: float) -> float:
    hours, rest = divmod(time, 3600)
    return 3600 * (2 * hours - hours % 2) + rest * (1 if hours % 2 == 0 else 3)


def ledger() -> NodeLedger:
    return NodeLedger({SPOT: Steps(), ON_DEMAND: Steps(10.0)})


def seconds(book: NodeLedger, now: float) -> dict[str, float]:
    return {one.label.value: one.seconds for one in book.charges(now)}


def test_each_second_has_one_label_and_the_price_of_its_time() -> None:
    book = ledger()
    book.start("a", 3500.0)
    book.label("a", NodeLabel.ROLLOUT, 3560.0)
    book.label("a", NodeLabel.IDLE, 3660.0)
    found = {one.label.value: (one.seconds, one.cost) for one in book.charges(3700.0)}
    assert found == {"boot": (60.0, 60.0), "rollout": (100.0, 40.0 + 180.0), "idle": (40.0, 120.0)}
    assert book.billed(3700.0) == {SPOT: 400.0}
    assert book.end("a", 3700.0)
    assert book.residual(9999.0) == 0.0
    assert book.counts() == {"started": 1, "running": 0, "ignored": 0}


def test_on_demand_nodes_have_their_own_price() -> None:
    book = ledger()
    book.start("a", 0.0, ON_DEMAND)
    book.start("b", 0.0)
    assert [(one.capacity, one.cost) for one in book.charges(5.0)] == [(ON_DEMAND, 50.0), (SPOT, 5.0)]
    assert book.running() == {"a": ON_DEMAND, "b": SPOT}


def test_work_that_was_not_saved_is_lost_with_its_node() -> None:
    book = ledger()
    book.start("a", 0.0)
    book.label("a", NodeLabel.ROLLOUT, 10.0)
    book.settle("a", 30.0)
    book.label("a", NodeLabel.IDLE, 40.0)
    book.label("a", NodeLabel.EXPLORE, 50.0)
    book.lose("a", 80.0, seen=60.0)
    assert seconds(book, 80.0) == {"boot": 10, "rollout": 20, "idle": 10, "explore": 0, "lost": 40}
    assert book.residual(80.0) == 0.0


def test_work_that_was_not_saved_is_lost_on_the_other_nodes_of_the_group_too() -> None:
    book = ledger()
    for name in ("a", "b"):
        book.start(name, 0.0)
        book.label(name, NodeLabel.ROLLOUT, 10.0)
        book.settle(name, 30.0)
    book.lose("a", 50.0)
    assert book.forfeit("b", 50.0) and not book.forfeit("a", 50.0)
    book.label("b", NodeLabel.EXPLORE, 60.0)
    book.lose("b", 70.0)
    # After the loss, node b works for ten seconds and explores for ten. Then it is lost with both.
    assert seconds(book, 70.0) == {"boot": 20, "rollout": 40, "explore": 0, "lost": 60}
    assert book.residual(70.0) == 0.0


def test_reports_that_repeat_or_come_out_of_order_are_kept_apart() -> None:
    book = ledger()
    assert book.start("a", 0.0)
    assert not book.start("a", 5.0)
    book.label("a", NodeLabel.IDLE, 20.0)
    book.label("a", NodeLabel.ROLLOUT, 10.0)
    assert seconds(book, 30.0) == {"boot": 20, "idle": 0, "rollout": 10}
    assert book.end("a", 15.0)
    assert seconds(book, 15.0) == {"boot": 15, "idle": 0, "rollout": 0}
    assert not any((book.end("a", 30.0), book.lose("a", 30.0), book.label("a", NodeLabel.IDLE, 30.0)))
    assert not book.settle("b", 1.0)
    assert book.counts()["ignored"] == 5
    assert book.residual(30.0) == 0.0


def test_a_price_that_changes_after_labels_are_final_leaves_a_residual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_seconds, "MAX_SPANS", 4)
    book = ledger()
    book.start("a", 0.0)
    for time in range(1, 11):
        book.label("a", (NodeLabel.ROLLOUT, NodeLabel.EXPLORE)[time % 2], time)
    assert book.residual(10.0) == 0.0
    book.set_prices(SPOT, Steps(2.0))
    assert 0 < book.residual(10.0) < 10
    assert sum(one.seconds for one in book.charges(10.0)) == 10


NODES = st.sampled_from("abc")
EVENTS = st.one_of(
    st.tuples(st.just("start"), NODES, st.sampled_from(Capacity)),
    st.tuples(st.just("label"), NODES, st.sampled_from(NodeLabel)),
    st.tuples(st.sampled_from(["settle", "end", "lose", "reload"]), NODES, st.none()),
)


OFFSETS = st.sampled_from([-3600, -40, -5, 0, 5, 40, 2000])


@given(st.lists(st.tuples(OFFSETS, EVENTS), max_size=40), st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_labels_add_up_to_the_bill_whatever_is_reported(
    events: list[tuple[int, tuple[str, str, Capacity | NodeLabel | None]]], most: int
) -> None:
    book, now = ledger(), 10_000.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_seconds, "MAX_SPANS", most)
        for offset, (act, node, value) in events:
            # Some reports carry a time before an earlier report.
            at = now + offset
            now = max(now, at)
            before = sum(book.billed(now).values())
            if act == "start" and isinstance(value, Capacity):
                book.start(node, at, value)
            elif act == "label" and isinstance(value, NodeLabel):
                book.label(node, value, at)
            elif act == "settle":
                book.settle(node, at)
            elif act == "reload":
                saved, book = book.state_dict(), ledger()
                book.load_state_dict(saved)
            else:
                book.end(node, now) if act == "end" else book.lose(node, now, at)
            if act not in ("start", "end"):
                assert sum(book.billed(now).values()) == pytest.approx(before)
            assert sum(one.cost for one in book.charges(now)) == pytest.approx(sum(book.billed(now).values()))
            assert all(one.seconds >= 0 for one in book.charges(now))
    assert book.residual(now) == pytest.approx(0.0, abs=1e-6)


def test_an_end_that_is_reported_too_early_counts_from_the_last_final_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_seconds, "MAX_SPANS", 2)
    book = ledger()
    book.start("a", 0.0)
    for time, label in ((10, NodeLabel.ROLLOUT), (20, NodeLabel.IDLE), (30, NodeLabel.ROLLOUT)):
        book.label("a", label, time)
    book.end("a", 5.0)
    assert seconds(book, 30.0) == {"boot": 10, "rollout": 0, "idle": 0}
    assert book.billed(30.0) == {SPOT: 10}
