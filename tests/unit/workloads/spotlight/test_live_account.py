"""The account of live workers' time, the update beside them, and what a restarted trainer restores."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.workloads.spotlight.thread_cluster import ThreadCluster
from tests.unit.workloads.spotlight.virtual_live import POLICY

from convoy_workloads.engines.spotlight.learning.grpo import UpdateReport
from convoy_workloads.engines.spotlight.live.cluster import LocalWorker
from convoy_workloads.engines.spotlight.live.connection import connect
from convoy_workloads.engines.spotlight.live.live_workers import BackgroundUpdate, LiveWorkers
from convoy_workloads.engines.spotlight.live.messages import Done, Progress, Pull, Weights
from convoy_workloads.engines.spotlight.live.node_account import NodeAccount
from convoy_workloads.engines.spotlight.params import Cluster, Params
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel
from convoy_workloads.spot.ledger.request import Lease, Request, RequestKind, RequestState
from convoy_workloads.spot.ledger.requests import RequestLedger

REPORT = UpdateReport(reward=0.0, loss=0.0, kl=0.0, clipped=0.0, zero_contrast=0.0)
EXPLORE = Request("job", 1, 0, 0, RequestKind.EXPLORE, 0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def seconds(account: NodeAccount, now: float) -> dict[NodeLabel, float]:
    return {one.label: one.seconds for one in account.nodes.charges(now) if one.capacity is Capacity.SPOT}


def test_each_second_of_a_worker_has_one_label_and_work_after_the_last_commit_is_lost() -> None:
    clock = Clock()
    account = NodeAccount(Cluster(spot_price=0.36), 2, clock)
    account.start("one")
    account.occupy("one", "one")
    lease = Lease(EXPLORE, "one", 0, 1, 0.0, None)
    for message, reply, after in [
        (Pull(1), [], 3.0),
        (Pull(1), [lease], 1.0),
        (Weights(0), None, 2.0),
        (Pull(1), [lease], 5.0),
        (Progress(()), frozenset({1}), 7.0),
    ]:
        account.follow("one", message, reply)
        clock.now += after
    account.end("one")
    found = seconds(account, clock.now)
    assert found[NodeLabel.LOST] == pytest.approx(7.0) and found[NodeLabel.IDLE] == pytest.approx(3.0)
    assert found[NodeLabel.EXPLORE] == pytest.approx(6.0) and found[NodeLabel.PULL] == pytest.approx(2.0)
    assert sum(found.values()) == pytest.approx(18.0)
    assert account.cost() == pytest.approx(18.0 * 0.18 / 3600)
    assert account.nodes.residual(clock.now) == pytest.approx(0.0)


def test_delivered_work_is_never_lost() -> None:
    clock = Clock()
    account = NodeAccount(Cluster(), 1, clock)
    account.start("one")
    account.occupy("one", "one")
    account.follow("one", Pull(1), [Lease(EXPLORE, "one", 0, 1, 0.0, None)])
    clock.now += 4.0
    account.follow("one", Done(()), 0)
    account.end("one")
    assert NodeLabel.LOST not in {label for label, value in seconds(account, clock.now).items() if value}


def test_a_slot_costs_from_the_start_of_its_pod_to_the_end_of_its_node_with_and_without_a_worker() -> None:
    clock = Clock()
    account = NodeAccount(Cluster(spot_price=0.36), 2, clock)
    account.reconcile({"used": 940.0, "empty": None})
    account.occupy("used", "worker")
    clock.now += 5.0
    account.follow("worker", Pull(1), [Lease(EXPLORE, "worker", 0, 1, 0.0, None)])
    clock.now += 4.0
    account.vacate("worker")
    clock.now += 20.0
    account.reconcile({"used": 940.0})
    clock.now += 1.0
    account.reconcile({})
    clock.now += 100.0
    found = seconds(account, clock.now)
    assert found == {
        NodeLabel.BOOT: pytest.approx(60.0 + 5.0 + 29.0),
        NodeLabel.LOST: pytest.approx(4.0),
        NodeLabel.IDLE: pytest.approx(20.0 + 1.0),
        NodeLabel.EXPLORE: 0.0,
    }
    assert account.cost() == pytest.approx((90.0 + 29.0) * 0.18 / 3600)


def test_a_pod_that_joins_again_costs_each_second_once() -> None:
    clock = Clock()
    account = NodeAccount(Cluster(), 1, clock)
    for here in (True, False, True, True, False):
        account.reconcile({"pod": 990.0} if here else {})
        clock.now += 10.0
    assert sum(seconds(account, clock.now).values()) == pytest.approx(50.0)


def test_the_money_that_was_spent_before_a_crash_is_not_forgotten() -> None:
    """The trainer restarts 700 s after its checkpoint. Eight pods have come in between, and one has gone."""
    clock, cluster = Clock(), Cluster(spot_price=0.36)
    before = NodeAccount(cluster, 1, clock)
    pods: dict[str, float | None] = {"known": 900.0, "gone": 900.0}
    before.reconcile(pods)
    saved = before.nodes.state_dict(), before.state_dict()
    clock.now += 700.0

    after = NodeAccount(cluster, 1, clock)
    after.nodes.load_state_dict(saved[0])
    after.load_state_dict(saved[1])
    clock.now += 10.0
    after.reconcile({"known": 900.0, **{f"pod-{one}": 1010.0 for one in range(8)}})
    clock.now += 10.0
    found = seconds(after, clock.now)
    assert found[NodeLabel.LOST] == pytest.approx(2 * 700.0 + 8 * 690.0)
    assert sum(found.values()) == pytest.approx((100 + 700 + 20) + (100 + 700) + 8 * (690 + 20))
    assert after.cost() == pytest.approx(sum(found.values()) * 0.36 / 3600)
    assert after.unobserved == 700.0


def test_an_update_runs_beside_and_its_error_reaches_the_loop() -> None:
    go_on = threading.Event()

    def update() -> UpdateReport:
        go_on.wait(10)
        return REPORT

    running = BackgroundUpdate(update, 0.0)
    assert running.report() is None and not running.ended()
    go_on.set()
    running._thread.join(10)
    assert running.report() is REPORT

    def fail() -> UpdateReport:
        raise ZeroDivisionError

    failed = BackgroundUpdate(fail, 0.0)
    failed._thread.join(10)
    with pytest.raises(ZeroDivisionError):
        failed.report()


def test_a_restarted_trainer_takes_the_leases_of_the_earlier_run_back_at_once() -> None:
    ledger, params = RequestLedger(lease_seconds=1000.0), Params()
    workers = LiveWorkers(ledger, ThreadCluster(_no_work), LocalWorker("own", _no_work, 1), params, Clock())
    workers.publish(3, POLICY)
    workers._account.start("slot")
    workers._account.occupy("slot", "spot")
    ledger.plan([EXPLORE])
    assert ledger.lease("spot", 1000.0) is not None
    saved = (ledger.state_dict(), workers.nodes.state_dict(), workers.state_dict())

    after = RequestLedger(lease_seconds=1000.0)
    again = LiveWorkers(after, ThreadCluster(_no_work), LocalWorker("own", _no_work, 1), params, Clock())
    after.load_state_dict(saved[0])
    again.nodes.load_state_dict(saved[1])
    assert after.state(EXPLORE.id) is RequestState.LEASED
    again.load_state_dict(saved[2], POLICY)
    assert after.state(EXPLORE.id) is RequestState.PLANNED
    assert set(again.nodes.running()) == {"own"}


def test_several_trainer_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="needs one trainer rank, but the job has 2"), connect(Params(), 2):
        raise AssertionError


def _no_work(client: Any) -> Any:
    return None
