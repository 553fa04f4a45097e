"""T04: the checkpoint interval is near the optimum of Young and Daly."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Subject
from convoy_controllers.checkpoint.interval import choose, failure_rate
from convoy_controllers.trainingjob.interval import training_hours
from convoy_crds.advice import Severity

FACTOR = 3.0
"""Ratio of an interval and the optimum from which the interval counts as wrong."""


def waste(interval: float, cost: float, mtbf: float) -> float:
    """Return the expected fraction of the time that saves and repeated steps take."""
    return cost / interval + interval / (2 * mtbf)


def _check(subject: Subject) -> Iterator[Found]:
    job = subject.training
    facts = job.status.facts if job is not None else None
    if job is None or facts is None or not facts.save_seconds or job.spec.checkpoint.automatic:
        return
    cost, chosen = facts.save_seconds, float(job.spec.checkpoint.interval_seconds)
    rate = failure_rate(job.status.restarts.total, training_hours(job.status))
    best = choose(cost, rate, facts.copy_seconds or 0.0).seconds
    if best / FACTOR <= chosen <= best * FACTOR:
        return
    before, after = waste(chosen, cost, 3600 / rate), waste(best, cost, 3600 / rate)
    yield Found(
        "spec.checkpoint.interval",
        f"{chosen:.0f} s between saves is {chosen / best:.2g} times the best interval, {best:.0f} s: a save "
        f"stops the ranks for {cost:.3g} s, and a fault is expected every {1 / rate:.1f} h. Saves and "
        f"repeated steps take about {before:.2%} of the time instead of {after:.2%}",
        "set interval: Auto, or a time near the best one",
    )


T04 = Rule("T04", "Checkpoint interval near the optimum", Severity.WARNING, _check, static=False)
