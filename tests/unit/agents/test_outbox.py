from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.backoff import Backoff
from convoy_agents.outbox import MAX_REMOVED, NOW_SECONDS, Outbox
from convoy_agents.pods.limits import TokenBucket
from convoy_agents.pods.state import Urgency
from convoy_controllers.liveness.timings import REPORT_SECONDS

BATCHED, NOW, NONE = Urgency.BATCHED, Urgency.NOW, Urgency.NONE


def sent_at(puts: list[tuple[float, Urgency]]) -> list[float]:
    """Return the times at which the outbox reports one pod, if `puts` are its changes and each report is
    sent when due.
    """
    outbox, sent, pending = Outbox(), [], sorted(puts, key=lambda entry: entry[0])
    while pending or outbox.next_due() is not None:
        due = outbox.next_due()
        if pending and (due is None or pending[0][0] <= due):
            when, urgency = pending.pop(0)
            outbox.put("pod", urgency, when)
            continue
        assert due is not None
        assert outbox.pop_due(due) == ([], ["pod"])
        sent.append(due)
    return sent


@pytest.mark.parametrize(
    ("puts", "sent"),
    [
        ([(5.0, NONE)], []),
        ([(5.0, BATCHED)], [5.0]),
        ([(5.0, BATCHED), (5.1, BATCHED), (5.2, BATCHED)], [5.0, 6.0]),
        ([(5.0, BATCHED), (5.5, NOW)], [5.0, 5.5]),
        ([(5.0, BATCHED), (5.1, BATCHED), (5.5, NOW)], [5.0, 5.5]),
        ([(5.0, NOW), (5.01, NOW), (5.02, NOW)], [5.0, 5.05]),
        ([(5.0, NOW), (5.01, NOW), (5.02, BATCHED)], [5.0, 5.05]),
        ([(5.0, BATCHED), (9.0, BATCHED)], [5.0, 9.0]),
    ],
    ids=[
        "nothing",
        "first",
        "folded",
        "urgent",
        "urgent overtakes folded",
        "flapping",
        "never later",
        "rare",
    ],
)
def test_reports_are_sent_when_due(puts: list[tuple[float, Urgency]], sent: list[float]) -> None:
    assert sent_at(puts) == pytest.approx(sent)


@given(st.lists(st.tuples(st.floats(10, 20), st.sampled_from([BATCHED, NOW])), min_size=1, max_size=40))
def test_report_rates_are_limited_and_the_last_change_is_sent(puts: list[tuple[float, Urgency]]) -> None:
    sent = sent_at(puts)
    gaps = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert all(gap >= NOW_SECONDS - 1e-9 for gap in gaps)
    if all(urgency is BATCHED for _, urgency in puts):
        assert all(gap >= REPORT_SECONDS - 1e-9 for gap in gaps)
    last = max(when for when, _ in puts)
    assert last <= sent[-1] + 1e-9 <= last + REPORT_SECONDS + 1e-6


def test_a_removed_pod_has_no_pending_report() -> None:
    outbox = Outbox()
    outbox.put("a", NOW, 1.0)
    outbox.put("b", NOW, 1.0)
    outbox.add_removed("a")
    assert outbox.next_due() == 0.0
    assert outbox.pop_due(2.0) == (["a"], ["b"])
    assert outbox.next_due() is None


def test_a_hello_clears_pending_reports_and_removals() -> None:
    outbox = Outbox()
    outbox.put("a", NOW, 1.0)
    outbox.add_removed("b")
    outbox.mark_all_sent(["a"], 1.5)
    assert outbox.next_due() is None
    outbox.put("a", BATCHED, 1.6)
    assert outbox.next_due() == 2.5


def test_removals_are_bounded_while_the_hub_is_disconnected() -> None:
    outbox = Outbox()
    for number in range(MAX_REMOVED + 10):
        outbox.add_removed(str(number))
    removed, _ = outbox.pop_due(0.0)
    assert len(removed) == MAX_REMOVED
    assert removed[-1] == str(MAX_REMOVED + 9)


def test_backoff_pauses_double_with_jitter_and_a_cap() -> None:
    backoff = Backoff(first=0.2, cap=5.0, random=random.Random(1))
    pauses = [backoff.next() for _ in range(10)]
    for pause, bound in zip(pauses, [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 5], strict=True):
        assert bound / 2 <= pause <= bound
    assert len(set(pauses)) == 10
    backoff.reset()
    assert backoff.next() <= 0.2


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 5)), min_size=1, max_size=50))
def test_the_token_bucket_limits_the_rate(takes: list[tuple[float, float]]) -> None:
    rate, burst = 10.0, 50.0
    bucket, now, spent = TokenBucket(rate, burst, 0.0), 0.0, 0.0
    for cost, idle in takes:
        now += bucket.spend(cost, now)
        spent += cost
        assert spent <= burst + rate * now + 1e-6
        now += idle
