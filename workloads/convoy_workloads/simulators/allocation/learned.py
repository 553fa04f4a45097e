"""A learned scheduler after DeepRM: a small network scores every start that is possible.

DeepRM sees the cluster and its queue as an image. Here the features of each start are computed. Unlike
DeepRM, which knows the needs of each job, the policy also chooses how much to reserve: one of `SIZES`.
Waiting is a candidate too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from convoy_workloads.simulators.allocation.policies import alignment
from convoy_workloads.simulators.allocation.sizing import DecayingHistogram
from convoy_workloads.simulators.allocation.view import Start, View, Waiting
from convoy_workloads.simulators.allocation.workload import Amount
from convoy_workloads.simulators.learned_choice import LearnedChoice
from convoy_workloads.simulators.scorer import initial_weights, weight_count

SIZES = (0.85, 1.0, 1.2, 1.5)
"""Factors of the median use of a job's class, from which the policy chooses."""
HALF_LIFE_SECONDS = 600.0
"""Half-life of the histogram that gives the median."""
INPUTS, HIDDEN = 11, 6
SHAPE = (INPUTS, HIDDEN)
WEIGHTS = weight_count(INPUTS, HIDDEN)
_START_PREFERENCE = 2.0
"""First weight of "a job starts" against "all jobs wait"."""


def start_weights(seed: int) -> list[float]:
    """Return the weights before any training: all starts are equally likely."""
    weights = initial_weights(INPUTS, HIDDEN, seed)
    weights[0] = _START_PREFERENCE
    return weights


def candidates(view: View, median: DecayingHistogram) -> tuple[list[Start], list[list[float]]]:
    """Return the possible starts and the features of each one. If waiting is allowed, the features have one
    row more.
    """
    starts, rows = [], []
    queue = math.log1p(view.waiting) / 3
    for index, waiting in enumerate(view.queue):
        usual = median.reserve(waiting.job, view.telemetry, view.now)
        for size in SIZES:
            amount = view.bounded(waiting, usual.times(size))
            node = view.place(amount)
            if node is None:
                break  # A larger amount does not fit either.
            starts.append(Start(index, node, amount))
            features = _features(view, waiting, amount, size, queue)
            rows.append([*features, alignment(view, amount, node)])
    if view.may_wait and starts:
        rows.append([0.0] * (INPUTS - 2) + [queue, 0.0])
    return starts, rows


def _features(view: View, waiting: Waiting, amount: Amount, size: float, queue: float) -> list[float]:
    return [
        1.0,
        math.log1p(waiting.seconds / 30),
        math.log1p((view.now - waiting.job.arrival) / 30),
        amount.cores / view.node.cores,
        amount.memory / view.node.memory,
        float(size == SIZES[0]),
        float(size == SIZES[1]),
        float(size == SIZES[3]),
        float(waiting.least is not None),
        queue,
    ]


@dataclass(frozen=True, slots=True)
class Learned:
    """The policy `learned`: a trained network chooses the next job to start."""

    choice: LearnedChoice
    median: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(50.0, 0.0, HALF_LIFE_SECONDS))

    def choose(self, view: View) -> Start | None:
        """Return the chosen start; None if the policy waits or nothing fits."""
        starts, rows = candidates(view, self.median)
        if not starts:
            return None
        chosen = self.choice.choose(view.now, rows)
        return None if chosen == len(starts) else starts[chosen]
