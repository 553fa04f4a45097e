"""The registration of an Experiment's plan, or the analysis of its blocks. The files go to the job's store.

The files are the state of the job's last step. The job ends well only if the store has them. A restarted job
computes them again and saves them once more, because the store may lack those of the first attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import convoy
from convoy_crds.experiment_hash import plan_hash
from convoy_crds.shown import error_line
from convoy_workloads.engines.experiment_analysis.file_state import EXTRA, FileState, write_files
from convoy_workloads.engines.experiment_analysis.params import Params
from convoy_workloads.engines.no_model import NoModel
from convoy_workloads.experiments.artefact import analysed, plan_files
from convoy_workloads.experiments.compact import compact
from convoy_workloads.experiments.register import problems, spec_of
from convoy_workloads.runtime.errors import ParamsError, StoreAway


def main() -> None:
    """Run the job's only rank."""
    with convoy.join(Params) as job:
        try:
            result, files = compute(job.params)
        except (ValueError, KeyError, TypeError) as error:  # The result follows from the parameters alone.
            raise ParamsError(f"the plan or its data are invalid: {error_line(error)}") from error
        keep(job, files)
        job.set_result(result)


def compute(params: Params) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the job's result and its files. Raises ParamsError if the plan must not be registered."""
    if params.action == "analyse":
        result, files = analysed(params.plan, params.given())
        return compact(result), files
    if found := problems(spec_of(params.plan), params.tuning):
        raise ParamsError("; ".join(found))
    return {"planHash": plan_hash(params.plan)}, plan_files(params.plan)


def keep(job: convoy.Job[Params], files: Mapping[str, bytes]) -> None:
    """Save the files. Raises StoreAway if the job has a store that does not accept them."""
    job.restore(model=NoModel(), extra={EXTRA: FileState(files)})
    for step in job.steps(job.restored.step + 1):
        job.report(step)
    if job.in_store is False:
        raise StoreAway("the store did not accept the files of the experiment: they are not in it yet")
    if job.params.folder:
        write_files(Path(job.params.folder), files)


if __name__ == "__main__":
    main()
