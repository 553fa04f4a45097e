"""All kinds of jobs that a simulated cluster runs."""

from __future__ import annotations

from typing import Any

from convoy_controllers.simulate.job_kind import JobKind
from convoy_controllers.simulate.serving.kind import SERVING
from convoy_controllers.simulate.training_jobs import TRAINING

JOB_KINDS: tuple[JobKind, ...] = (TRAINING, SERVING)
DEFAULT_KIND = TRAINING
"""Kind of a manifest in a scenario file that names no kind."""
_BY_NAME = {kind.name: kind for kind in JOB_KINDS}


def kind_of(job: Any) -> JobKind:
    """Return the description of a job's kind. Raises KeyError if no such job can be simulated."""
    return _BY_NAME[job.kind]
