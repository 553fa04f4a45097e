"""A job that builds indexes of vectors. Each build is a step, and each is saved as a generation."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import convoy
from convoy_crds import terms
from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.generation import EXTRA, IndexState
from convoy_workloads.engines.aperon_index.build import Built, build_with_retries
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import SourceError
from convoy_workloads.engines.no_model import NoModel
from convoy_workloads.runtime.errors import DataError, Interrupted, ParamsError, StoreAway
from convoy_workloads.runtime.rank_context import from_environment
from convoy_workloads.serving.renewing import renewing

WITHOUT_END = 1_000_000_000
"""Number of steps of a job that builds without end."""
FOLDER = "aperon-index"
REPORT_SECONDS = 30.0
"""Longest time between two reports during a build or a pause. They also show that the rank is alive."""
_POLL_SECONDS = 0.1


def main() -> None:
    """Run the job's only rank."""
    with convoy.join(Params) as job, stopping() as stop:
        if job.world != 1:
            raise ParamsError(f"an index is built by one rank, and the job has {job.world}: use one replica")
        with workspace(job.params) as folder:
            try:
                run(job, folder, stop)
            except SourceError as error:
                raise DataError(str(error)) from error
            except AperonError as error:
                raise DataError(f"the index cannot be built: {error}") from error


def run(job: convoy.Job[Params], folder: Path, stop: list[int]) -> None:
    """Build and save the generations that are left."""
    params, state = job.params, IndexState()
    job.restore(model=NoModel(), extra={EXTRA: state})
    total, built = params.generations or WITHOUT_END, None
    for step in job.steps(total):
        started, reporter = time.monotonic(), Reporter(job, step - 1, stop)
        own = folder / f"index-{step}"
        built = renewing(reporter.renew, partial(build_with_retries, params, step, own, reporter.count))
        size = state.show(built.folder)
        shutil.rmtree(folder / f"index-{step - 1}", ignore_errors=True)
        job.report(step, metrics=_metrics(built, size))
        job.checkpoint(step, now=True)
        if step < total:
            _pause(started + params.every_seconds, Reporter(job, step, stop).renew)
    if built is not None:
        if job.in_store is False:
            raise StoreAway("the store did not accept the last index: it is not in it yet")
        recall = {} if built.recall is None else {"recall": round(built.recall, 4)}
        job.set_result({"records": built.records, "generations": total, **recall})


def _metrics(built: Built, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "indexed_records": built.records,
        "index_bytes": size,
        "build_seconds": built.seconds,
    }
    return found if built.recall is None else {**found, "build_recall": built.recall}


class Reporter:
    """Reports the progress of a build."""

    def __init__(self, job: convoy.Job[Params], done: int, stop: list[int]) -> None:
        """`done`: the last step that is complete. `stop` is filled when the job is told to stop."""
        self._job, self._done, self._stop = job, done, stop
        self._records: int | None = None
        self._reported = time.monotonic()
        self._seconds = min(REPORT_SECONDS, from_environment(os.environ).hang_seconds / 3)

    def count(self, records: int) -> None:
        """Set the number of records so far. Any thread may call this."""
        self._records = records

    def renew(self) -> None:
        """Report, if it is time. Raises Interrupted if the job is told to stop: its restart builds anew."""
        if self._stop:
            raise Interrupted
        now = time.monotonic()
        if now - self._reported >= self._seconds:
            self._reported = now
            metrics = {} if self._records is None else {"indexed_records": self._records}
            self._job.report(self._done, metrics=metrics)


def _pause(until: float, renew: Callable[[], None]) -> None:
    """Wait until a monotonic time."""
    while (left := until - time.monotonic()) > 0:
        renew()
        time.sleep(min(left, _POLL_SECONDS))


@contextlib.contextmanager
def stopping() -> Iterator[list[int]]:
    """Return a list that SIGTERM fills. The job's own handler runs, too."""
    found: list[int] = []
    previous = signal.getsignal(signal.SIGTERM)

    def stop(number: int, frame: Any) -> None:
        found.append(number)
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield found
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def workspace(params: Params) -> Iterator[Path]:
    """Return an empty folder for indexes, which is deleted at the end."""
    parent = params.folder or os.environ.get(terms.ENV_HOME)
    found = Path(parent) / FOLDER if parent else Path(tempfile.mkdtemp(prefix=f"convoy-{FOLDER}-"))
    try:
        # A process that was killed may have left its indexes.
        shutil.rmtree(found, ignore_errors=True)
        found.mkdir(parents=True)
    except OSError as error:
        raise ParamsError(f"folder: {found}: {error.strerror}") from error
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


if __name__ == "__main__":
    main()
