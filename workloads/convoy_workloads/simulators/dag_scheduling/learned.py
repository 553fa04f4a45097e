"""A learned scheduler after Decima: a small network scores every stage that could start.

Decima computes the features of a stage with a graph network. Here they are computed exactly: the remaining
work of the job, the critical path below the stage, and the state of the cluster. As in Decima, the policy
also decides how many executors a job gets: leaving executors idle is a candidate too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_workloads.simulators.dag_scheduling.view import Candidate, View
from convoy_workloads.simulators.learned_choice import LearnedChoice
from convoy_workloads.simulators.scorer import initial_weights, weight_count

INPUTS, HIDDEN = 10, 6
WEIGHTS = weight_count(INPUTS, HIDDEN)
SHAPE = (INPUTS, HIDDEN)
_WORK_PREFERENCE = 2.0
"""First weight of "a task starts" against "executors stay idle"."""


def start_weights(seed: int) -> list[float]:
    """Return the weights before any training: all stages are equally likely."""
    weights = initial_weights(INPUTS, HIDDEN, seed)
    weights[0] = _WORK_PREFERENCE
    return weights


def features(view: View) -> list[list[float]]:
    """Return the features of each candidate. The last row stands for leaving the executors idle, and is
    missing if that is not allowed.
    """
    free, jobs = view.free / view.capacity, math.log1p(len(view.live)) / 2
    known = {one.job: one.work for one in view.candidates}
    total = math.fsum(known.values()) or 1.0
    rows = [_features(one, view, total, (free, jobs)) for one in view.candidates]
    if view.may_idle:
        rows.append([0.0] * (INPUTS - 2) + [free, jobs])
    return rows


def _features(one: Candidate, view: View, total: float, common: tuple[float, float]) -> list[float]:
    return [
        1.0,
        math.log1p(one.work / 20),
        math.log1p(one.path / 10),
        one.executors / view.capacity,
        math.log1p(one.tasks) / 3,
        float(one.local),
        math.log1p((view.now - one.arrival) / 60),
        one.work / total,
        *common,
    ]


@dataclass(frozen=True, slots=True)
class Learned:
    """The policy `learned`: a trained network chooses the next job."""

    choice: LearnedChoice

    def choose(self, view: View) -> int | None:
        """Return the index of the chosen stage; None to leave the executors idle."""
        chosen = self.choice.choose(view.now, features(view))
        return None if chosen == len(view.candidates) else chosen
