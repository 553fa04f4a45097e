"""The workers of a job on real nodes, as the loop sees them (`spotlight/workers.py`).

The loop's thread alone uses the ledger. While it polls, it answers the calls of workers, takes back the
leases of lost ones, and starts workers on nodes that have come. The update runs in a thread beside it. No
call waits for a worker without a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from convoy_workloads.engines.spotlight.learning.grpo import UpdateReport
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.live.cluster import Cluster, LocalWorker
from convoy_workloads.engines.spotlight.live.lease_service import LeaseService
from convoy_workloads.engines.spotlight.live.mailbox import Call
from convoy_workloads.engines.spotlight.live.node_account import NodeAccount
from convoy_workloads.engines.spotlight.live.weights import KEPT, vector_of
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.workers import Finished
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLedger
from convoy_workloads.spot.ledger.request import Request, RequestState
from convoy_workloads.spot.ledger.requests import RequestLedger

TICK_SECONDS = 0.02
"""Longest wait for a call of a spot worker, before the worker in this process gets its answers."""
RECONCILE_SECONDS = 0.5
"""Seconds between two looks for nodes that have come or gone."""
_RUNNING = (RequestState.PLANNED, RequestState.LEASED)
SMOOTHING = 0.5
"""Weight of the last update's time in the prediction of the next one."""


class BackgroundUpdate:
    """An update of the policy in a thread."""

    def __init__(self, update: Callable[[], UpdateReport], predicted_end: float, least: float = 0.0) -> None:
        """Start the update. It lasts at least `least` seconds."""
        self.predicted_end = predicted_end
        self._update = update
        self._least = least
        self._report: UpdateReport | None = None
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="update", daemon=True)
        self._thread.start()

    def report(self) -> UpdateReport | None:
        """Return the figures of the update; None while it runs. Raises the update's error."""
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._report

    def ended(self) -> bool:
        """Return True if the update has ended, in whatever way."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._report = self._update()
        except BaseException as error:
            self._error = error
        else:
            time.sleep(max(0.0, self._least - (time.monotonic() - self._began)))
        finally:
            self.seconds = time.monotonic() - self._began


class LiveWorkers:
    """The workers. All methods are called by the loop's thread."""

    def __init__(
        self,
        ledger: RequestLedger,
        cluster: Cluster,
        on_demand: LocalWorker,
        params: Params,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Serve `ledger` to the workers of `cluster` and to the worker in this process, `on_demand`."""
        self._account = NodeAccount(params.cluster, params.live.slots, clock)
        self._account.start(on_demand.name, Capacity.ON_DEMAND)
        self._account.occupy(on_demand.name, on_demand.name)
        self._train_seconds = params.cluster.train_seconds / params.cluster.on_demand * params.live.pace
        """Least time of an update for each sample."""
        self._ledger = ledger
        self._cluster = cluster
        self._on_demand = on_demand
        self._clock = clock
        self._stored: dict[int, Any] = {}
        self._vectors: dict[int, Any] = {}
        self.service = LeaseService(ledger, clock, self._stored.get)
        self._own = LeaseService(ledger, clock, self._vectors.get)
        self._training: BackgroundUpdate | None = None
        self._update_seconds = 1.0
        self._reconciled = 0.0
        self.losses = 0
        """Number of workers that were lost or drained."""
        self.failures = 0
        """Number of workers that failed on a node that stays."""

    # The loop's interface

    def now(self) -> float:
        """Return the Unix time."""
        return self._clock()

    def publish(self, version: int, policy: Policy) -> None:
        """Store the weights of a version, once for all workers."""
        vector = vector_of(policy)
        self._vectors[version], self._stored[version] = vector, self._cluster.store(vector)
        for kept in (self._vectors, self._stored):
            for old in sorted(kept)[:-KEPT]:
                del kept[old]

    def submit(self, requests: Sequence[Request]) -> None:
        """Plan requests in the ledger."""
        self._ledger.plan(requests)

    def cancel(self, ids: Iterable[str]) -> None:
        """End requests that are no longer needed. A worker drops them at its next commit."""
        self._ledger.supersede(ids)

    def train(self, update: Callable[[], UpdateReport], samples: int) -> BackgroundUpdate:
        """Start an update. The worker in this process pauses meanwhile."""
        self.pause_own()
        least = samples * self._train_seconds
        self._training = BackgroundUpdate(update, self.now() + max(least, self._update_seconds), least)
        return self._training

    def poll(self, until: float) -> list[Finished]:
        """Serve the workers until a request or the update has ended, at most until a time."""
        while True:
            self._serve()
            ended = self._settle_training()
            found = self._collect_finished()
            if found or ended or self.now() >= until:
                return found

    def groups(self) -> int:
        """Return the number of groups of spot workers."""
        return self._cluster.groups()

    @property
    def cluster(self) -> Cluster:
        """The spot workers."""
        return self._cluster

    # The account, and the state

    @property
    def nodes(self) -> NodeLedger:
        """The account of the nodes' time."""
        return self._account.nodes

    def cost(self) -> float:
        """Return the cost of all nodes so far."""
        return self._account.cost()

    @property
    def unobserved(self) -> float:
        """Seconds between the checkpoints and the restarts of the trainer. See `NodeAccount.unobserved`."""
        return self._account.unobserved

    def state_dict(self) -> dict[str, Any]:
        """Return the published version, the predicted seconds of an update, and what the account of nodes
        needs. Workers and calls are not saved: they come anew.
        """
        return {
            "updateSeconds": self._update_seconds,
            "version": max(self._vectors),
            "account": self._account.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Set the saved state and publish the restored weights. Take back the leases of the earlier run's
        workers, which ended with it.
        """
        self._update_seconds = float(state["updateSeconds"])
        self.publish(int(state["version"]), policy)
        for worker in self._account.load_state_dict(state["account"]):
            self._ledger.revoke(worker)
        self._account.start(self._on_demand.name, Capacity.ON_DEMAND)
        self._account.occupy(self._on_demand.name, self._on_demand.name)

    # Serving

    def serve(self, seconds: float) -> None:
        """Serve the workers for some time. Their results wait for the next `poll`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._serve()

    def pause_own(self) -> None:
        """Give the worker in this process no further lease until an update has ended."""
        self._own.pause(self._on_demand.name)

    def close(self, seconds: float = 5.0) -> None:
        """End the worker in this process. It may surrender its leases for at most `seconds`."""
        self._on_demand.stop()
        end = time.monotonic() + seconds
        while not self._on_demand.join(0.0) and time.monotonic() < end:
            self._serve()

    def _serve(self) -> None:
        self._reconcile()
        own = self._on_demand.mailbox.collect(0.0)
        self._on_demand.mailbox.reply({one.number: self._handle(self._own, one) for one in own})
        if calls := self._cluster.collect(TICK_SECONDS):
            self._cluster.reply({one.number: self._handle(self.service, one) for one in calls})

    def _handle(self, service: LeaseService, call: Call) -> Any:
        answer = service.handle(call.worker, call.message)
        self._account.follow(call.worker, call.message, answer)
        return answer

    def _reconcile(self) -> None:
        if time.monotonic() - self._reconciled < RECONCILE_SECONDS:
            return
        self._reconciled = time.monotonic()
        self._ledger.time_out(self._clock())
        changes = self._cluster.reconcile()
        for name in changes.ended:
            self.losses += 1
            self.service.remove(name)
            self._account.vacate(name)
        self.failures += changes.failed
        self._account.reconcile(changes.slots)
        for name, slot in changes.started.items():
            self._account.occupy(slot, name)
        self._cluster.fit(len(self._ledger.select(_RUNNING)))
        for name in self._cluster.draining():
            self.service.pause(name)

    def _settle_training(self) -> bool:
        """Return True if an update has ended since the last call."""
        if self._training is None or not self._training.ended():
            return False
        self._update_seconds += SMOOTHING * (self._training.seconds - self._update_seconds)
        self._training = None
        self._own.resume(self._on_demand.name)
        return True

    def _collect_finished(self) -> list[Finished]:
        taken = [*self.service.finished, *self._own.finished]
        self.service.finished.clear()
        self._own.finished.clear()
        return [Finished(request, float(result.payload["reward"])) for request, result in taken]
