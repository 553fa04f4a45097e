"""The deadline of a run. The time in which a job of the run waits in its queue does not count."""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import load_name
from convoy_crds.experiment_status import RunStatus


def deadline(draft: Draft, record: RunStatus) -> datetime | None:
    """Return the time at which a run has failed if it has not ended; None while one of its jobs waits in its
    queue.

    A job without a queue starts when it is created. A job in a queue starts when the queue admits it, and
    again after an eviction.
    """
    start = record.start_time or draft.now
    for name, uid in ((record.name, record.uid), (load_name(record.name), record.load_uid)):
        job = draft.job(name, uid)
        if job is None or job.ended or not job.queue:
            continue
        if job.start_time is None:
            return None
        start = max(start, job.start_time)
    return start + timedelta(seconds=draft.spec.run_deadline_seconds)
