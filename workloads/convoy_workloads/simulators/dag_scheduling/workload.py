"""Jobs of the simulated cluster: graphs of stages with tasks.

The generator stands for TPC-H queries on Spark. A job is one of `TEMPLATES` graphs at one of six input
sizes, as in Decima's evaluation. The graphs and times themselves are generated, not measured. All numbers
come from the seed alone, so every arm of a block gets the same jobs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Model

TEMPLATES = 22
INPUT_SIZES = (2, 5, 10, 20, 50, 100)
"""Sizes of a job's input in gigabytes, all equally frequent."""
_TEMPLATE_SEED = "convoy/dag-scheduling/templates"


class Workload(Model):
    """Jobs that arrive at random times."""

    jobs: Annotated[int, Field(ge=1, le=1000)] = 24
    """Number of jobs in the run."""
    mean_interval_seconds: Annotated[float, Field(gt=0, le=86_400)] = 18.0
    """Mean time between two arrivals. The times are exponentially distributed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: tasks that may run at the same time once all parents have ended."""

    tasks: int
    seconds: float
    """Seconds of one task on an executor of a job that has at most `Job.sweet_spot` executors."""
    parents: tuple[int, ...]
    path_seconds: float
    """Length of the longest path from the start of this stage to the end of the job, one task per stage."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the workload."""

    arrival: float
    stages: tuple[Stage, ...]
    sweet_spot: int
    """Number of executors above which its tasks slow each other down."""

    @property
    def work(self) -> float:
        """Return the executor seconds of all tasks."""
        return math.fsum(one.tasks * one.seconds for one in self.stages)


@dataclass(frozen=True, slots=True)
class _Template:
    """A graph of stages for an input of 20 gigabytes: (tasks, seconds of a task, parents) of each stage."""

    stages: tuple[tuple[float, float, tuple[int, ...]], ...]
    sweet_spot: int


def _templates() -> tuple[_Template, ...]:
    draw = random.Random(_TEMPLATE_SEED)  # noqa: S311 - must be repeatable
    return tuple(_template(draw) for _ in range(TEMPLATES))


def _template(draw: random.Random) -> _Template:
    count = draw.randint(2, 8)
    stages = []
    for number in range(count):
        earlier = range(max(0, number - 3), number)
        wanted = min(len(earlier), 0 if draw.random() < 0.25 else draw.randint(1, 2))
        parents = tuple(sorted(draw.sample(list(earlier), wanted)))
        stages.append((draw.lognormvariate(1.2, 0.8), draw.lognormvariate(1.3, 0.6), parents))
    return _Template(tuple(stages), draw.randint(3, 8))


_KNOWN = _templates()


def jobs(workload: Workload, seed: int, factor_at: Callable[[float], float] = lambda _: 1.0) -> list[Job]:
    """Return the jobs in the order of their arrival. `factor_at` returns the factor of the arrivals' rate at
    a time. Everything else does not depend on it.
    """
    arrivals, kinds = _stream(seed, "arrivals"), _stream(seed, "kinds")
    at, found = 0.0, []
    for _ in range(workload.jobs):
        at += arrivals.expovariate(1 / workload.mean_interval_seconds) / factor_at(at)
        found.append(_job(at, _KNOWN[kinds.randrange(TEMPLATES)], kinds.choice(INPUT_SIZES)))
    return found


def _stream(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/workload/{purpose}")  # noqa: S311 - must be repeatable


def _job(arrival: float, template: _Template, gigabytes: int) -> Job:
    scale = gigabytes / 20
    sized = [
        (max(1, min(40, round(tasks * scale**0.7))), seconds * scale**0.3, parents)
        for tasks, seconds, parents in template.stages
    ]
    paths = [0.0] * len(sized)
    for number in reversed(range(len(sized))):
        after = [paths[child] for child in range(number + 1, len(sized)) if number in sized[child][2]]
        paths[number] = sized[number][1] + max(after, default=0.0)
    stages = tuple(
        Stage(tasks, seconds, parents, path)
        for (tasks, seconds, parents), path in zip(sized, paths, strict=True)
    )
    return Job(arrival, stages, max(2, round(template.sweet_spot * scale**0.3)))
