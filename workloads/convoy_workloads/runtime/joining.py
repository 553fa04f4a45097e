"""The start of a rank: it joins its job."""

from __future__ import annotations

import os
from typing import Any

from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.params import check_params
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.runtime.rank_context import from_environment


def join(params: Any = None) -> Job[Any]:
    """Join the job that the environment variables describe; without a launcher, become rank 0 of 1.

    `params` checks the job's parameters. It is a pydantic model, or any callable that accepts the
    parameters as keyword arguments. Its result becomes `job.params`. Without `params`, `job.params` is a
    plain dict. A rank whose parameters are rejected ends with exit code 10.
    """
    try:
        context = from_environment(os.environ)
        return Job(context, check_params(params, context.params))
    except Exception as error:
        if os.environ.get("CONVOY_INCARNATION"):
            exit_process(error)
        raise
