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
    account.follow("one", Pull(1), [Lease(EXPLORE, "one", 0, 1, 0.0, None)])
    clock.now += 4.0
    account.follow("one", Done(()), 0)
    account.end("one")
    assert NodeLabel.LOST not in {label for label, value in seconds(account, clock.now).items() if value}


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
    workers._account.start("spot")
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
