"""The loop of a worker: pull leases, compute them step by step, commit each step, deliver the results.

The worker may be killed at any time. A commit that has arrived is never lost, and a lease that nobody renews
times out. On a notice the worker gives its leases back with the progress so far, and ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from convoy_workloads.engines.spotlight.live.computation import Computation
from convoy_workloads.engines.spotlight.live.messages import (
    Client,
    Done,
    NoAnswer,
    Progress,
    Pull,
    Surrender,
)
from convoy_workloads.spot.ledger.request import Lease

ANSWER_SECONDS = 5.0
"""Maximum number of seconds to wait for an answer of the driver."""
DELIVERIES = 3


class WeightsGone(Exception):
    """The weights of a version cannot be had any more."""


class Worker:
    """One worker. `run` ends at a notice, or when `stop` was called."""

    def __init__(
        self,
        client: Client,
        computation: Computation,
        capacity: int,
        pause: Callable[[], None],
        noticed: Callable[[], bool] = lambda: False,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepare the loop. `pause` waits a moment before the next pull. `noticed` is True if the node is
        about to vanish. `leads` is False while another worker pulls leases for the group of this one.
        """
        self._client = client
        self._computation = computation
        self._capacity = capacity
        self._pause = pause
        self._noticed = noticed
        self._leads = leads
        self._stopped = False
        self.counts: Counter[str] = Counter()
        """Numbers of steps, commits, results, and of messages without an answer."""

    def stop(self) -> None:
        """Give the leases back after the current step, and end."""
        self._stopped = True

    def run(self) -> None:
        """Work until the node is about to vanish, or until `stop` is called."""
        while not self._must_stop():
            leases = (self._call(Pull(self._capacity)) or []) if self._leads() else []
            if leases:
                self._compute(leases)
            else:
                self._pause()

    def _must_stop(self) -> bool:
        return self._stopped or self._noticed()

    def _compute(self, leases: list[Lease]) -> None:
        """Compute leases of one version of the weights."""
        work = self._computation
        version = leases[0].request.version
        held = [(lease, work.load(lease.request, lease.commit)) for lease in leases]
        try:
            while held and (step := min(work.step(state) for _, state in held)) < work.steps:
                if self._must_stop():
                    break
                states = work.advance(version, [state for _, state in held], step + 1)
                self.counts["steps"] += 1
                held = [(lease, state) for (lease, _), state in zip(held, states, strict=True)]
                if step + 1 < work.steps:
                    held = self._save(version, held)
        except WeightsGone:
            self.counts["weightsGone"] += 1
        finished = [one for one in held if work.step(one[1]) == work.steps]
        if finished:
            self._deliver(Done(tuple((lease, work.result(state)) for lease, state in finished)))
        left = tuple(
            (lease, work.commit(version, state) if work.step(state) else None)
            for lease, state in held
            if work.step(state) < work.steps
        )
        if left:
            self._call(Surrender(left))

    def _deliver(self, message: Done) -> None:
        """Send results; again, at most DELIVERIES times, if there is no answer. The ledger drops repeats."""
        for _ in range(DELIVERIES):
            if self._call(message) is not None:
                self.counts["results"] += len(message.results)
                return

    def _save(self, version: int, held: list[tuple[Lease, Any]]) -> list[tuple[Lease, Any]]:
        """Commit the progress. Return what this worker still holds."""
        commits = tuple((lease, self._computation.commit(version, state)) for lease, state in held)
        kept = self._call(Progress(commits))
        self.counts["commits"] += len(commits)
        # Without an answer, go on: the lease may be valid, and a late result counts all the same.
        return held if kept is None else [one for one in held if one[0].number in kept]

    def _call(self, message: Pull | Progress | Surrender | Done) -> Any:
        """Return the driver's answer; None if there is none."""
        try:
            return self._client.call(message, ANSWER_SECONDS)
        except NoAnswer:
            self.counts["unanswered"] += 1
            return None
