"""The study as a job. Its files go to the job's store, and the answers to the claims are the job's result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import convoy
from convoy_workloads.engines.experiment_analysis.file_state import EXTRA, FileState, write_files
from convoy_workloads.engines.no_model import NoModel
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.report import markdown
from convoy_workloads.engines.orchestration.study import InvalidStudy, Study
from convoy_workloads.runtime.errors import ParamsError, StoreAway


def main() -> None:
    """Run the job's only rank."""
    with convoy.join(Params) as job:
        run(job)


def run(job: convoy.Job[Params]) -> None:
    """Carry out the study. Each piece of work is a step. A restarted job begins again."""
    try:
        study = Study(job.params)
    except InvalidStudy as error:
        raise ParamsError(str(error)) from error
    files: dict[str, bytes] = {}
    job.restore(model=NoModel(), extra={EXTRA: FileState(files)})
    work = study.work()
    for step in job.steps(job.restored.step + study.steps):
        next(work)
        if step == job.restored.step + study.steps:
            files.update(study.files())
        job.report(step)
    print(markdown(study.data), flush=True)
    if job.in_store is False:
        raise StoreAway("the store did not accept the files of the study: they are not in it yet")
    if job.params.folder:
        write_files(Path(job.params.folder), files)
    job.set_result(result(study))


def result(study: Study) -> Mapping[str, object]:
    """Return the job's result."""
    found = {one.name: one.answer.value for one in study.claims}
    return {"planHash": study.hash, "claims": found, "runs": len(study.runs)}


if __name__ == "__main__":
    main()
