"""The state of the cluster as a policy sees it when executors are free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stage with tasks that could start now. The measured fields may be late or wrong."""

    job: int
    """Number of the job, in the order of the arrivals."""
    stage: int
    arrival: float
    tasks: int
    """Number of the stage's tasks that have not started."""
    local: bool
    """True if a free executor belongs to the job already, so that none has to move."""
    executors: int
    """Number of executors that run tasks of the job."""
    work: float
    """Measured: executor seconds of the job's tasks that have not started."""
    path: float
    """Measured: seconds of the longest path from this stage to the end of the job."""


@dataclass(frozen=True, slots=True)
class View:
    """One decision: which stage gets the next free executor."""

    now: float
    capacity: int
    """Number of executors of the cluster, without those of a tenant."""
    free: int
    """Number of executors that are free."""
    live: tuple[int, ...]
    """Jobs that have arrived and not ended."""
    may_idle: bool
    """False if nothing runs, so that the policy must choose a stage."""
    candidates: tuple[Candidate, ...]


class Policy(Protocol):
    """Chooses the job that gets a free executor."""

    def choose(self, view: View) -> int | None:
        """Return the index of the candidate that gets an executor. None leaves the free executors idle until
        the next event.
        """
