"""The prediction of a job's step time from its traces, with other links or other buckets of gradients."""

from __future__ import annotations

import statistics
from dataclasses import replace

from convoy_workloads.traces.predict.buckets import with_buckets
from convoy_workloads.traces.predict.contention import without_contention
from convoy_workloads.traces.predict.job import Job, job_of
from convoy_workloads.traces.predict.links import Links
from convoy_workloads.traces.predict.together import replay_together


def recorded_step_us(job: Job) -> float:
    """Return the recorded time of a step: the median in microseconds."""
    return statistics.median(replay_together(job).step_times())


def predicted_step_us(job: Job, links: Links, bucket_bytes: int | None = None) -> float:
    """Return the predicted time of a step: the median in microseconds.

    Operators take their times without a communication beside them, see `without_contention`.
    `bucket_bytes`: size of DDP's buckets; None to keep the recorded ones. Raises InvalidTrace if the traces
    do not show gradients.
    """
    changed = rebucketed(without_contention(job), bucket_bytes)
    return statistics.median(replay_together(changed, links).step_times())


def predicted_change_us(
    job: Job,
    links: Links,
    speed: float = 1.0,
    link_rate: float | None = None,
    bucket_bytes: int | None = None,
) -> float:
    """Return the predicted time of a step with `speed` times the rate of the fitted `links`, in microseconds.

    If neither the speed nor the buckets change, the answer is the recorded time, without the fit's error.
    `link_rate` as in `at_speed`, `bucket_bytes` as in `predicted_step_us`. Raises InvalidTrace.
    """
    if speed == 1 and rebucketed(job, bucket_bytes) is job:
        return recorded_step_us(job)
    return predicted_step_us(job, at_speed(links, speed, link_rate), bucket_bytes)


def at_speed(links: Links, speed: float, link_rate: float | None = None) -> Links:
    """Return calibrated links as they would be with `speed` times the rate.

    `link_rate`: known rate of the recorded links in bytes a microsecond. A byte takes longer than this rate
    says, because hosts copy and add it. This part stays the same on other links. Without the rate, all of the
    time is taken for that of the link.
    """
    host = 0.0 if link_rate is None else max(1 / links.bytes_per_us - 1 / link_rate, 0.0)
    return replace(links, bytes_per_us=1 / ((1 / links.bytes_per_us - host) / speed + host))


def rebucketed(job: Job, bucket_bytes: int | None) -> Job:
    """Return the job with other buckets; the job itself for None, and if these are the recorded buckets.
    Raises InvalidTrace if a trace does not show its gradients.
    """
    if bucket_bytes is None:
        return job
    changed = [with_buckets(one, bucket_bytes) for one in job.traces]
    if all(one is before for one, before in zip(changed, job.traces, strict=True)):
        return job
    return job_of(changed, job.offsets)
