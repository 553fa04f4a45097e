"""Reasons about the traces that a TrainingJob records."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class TraceReasons:
    """Reasons about the traces that a TrainingJob records."""

    TRACE_ARMED = Reason(
        "TraceArmed", "the next straggler is recorded; {count} recordings of at most {most} exist"
    )
    TRACE_WAITING = Reason("TraceWaiting", "recording {recording} waits for {what}")
    TRACE_RECORDING = Reason(
        "TraceRecording", "recording {recording}: {done} of {wanted} ranks have stored steps {steps}"
    )
    TRACE_STORED = Reason(
        "TraceStored",
        "recording {recording}: CheckpointStore {store!r} has steps {steps} of ranks {ranks}. Fetch them: "
        "convoy trace fetch {job}",
    )
    TRACE_RANKS_UNKNOWN = Reason(
        "TraceRanksUnknown",
        "spec.trace.ranks: {why}; the job trains on without a trace",
        warning=True,
    )
    TRACE_STORE_UNKNOWN = Reason(
        "TraceStoreUnknown",
        "spec.trace.store: CheckpointStore {name!r} does not exist; there are: {known}",
        warning=True,
    )
    TRACE_STORE_NOT_ALLOWED = Reason(
        "TraceStoreNotAllowed",
        "spec.trace.store: CheckpointStore {name!r} does not allow namespace {namespace!r}; add it to "
        "spec.allowedNamespaces of the store",
        warning=True,
    )
    TRACE_STEPS_PASSED = Reason(
        "TraceStepsPassed",
        "recording {recording}: {who} had begun step {first} before the request arrived. Ask for a later "
        "step, or leave spec.trace.steps.first out",
        warning=True,
    )
    TRACE_BEYOND_END = Reason(
        "TraceBeyondEnd",
        "recording {recording}: the job {ends} at step {end}, but the recording needs {what}. Ask for an "
        "earlier step of the next job, or for fewer steps",
        warning=True,
    )
    TRACE_TOO_LARGE = Reason(
        "TraceTooLarge",
        "recording {recording}: {who}: {why}. Record fewer steps, or raise spec.trace.maxMebibytes",
        warning=True,
    )
    TRACE_NOT_STORED = Reason(
        "TraceNotStored",
        "recording {recording}: {who}: CheckpointStore {store!r} did not take the file: {why}",
        warning=True,
    )
    TRACE_NOT_RECORDED = Reason(
        "TraceNotRecorded", "recording {recording}: {who}: {why}; the log of the rank has more", warning=True
    )
    TRACE_MISSING = Reason(
        "TraceMissing",
        "recording {recording}: {who} sent no trace within {seconds} s after the last step. Only programs "
        "that use convoy.join and job.steps, or torch optimizers, can be recorded",
        warning=True,
    )
    TRACE_INTERRUPTED = Reason(
        "TraceInterrupted",
        "recording {recording}: the ranks were restarted before the trace of the straggler was stored",
        warning=True,
    )
    TRACE_JOB_ENDED = Reason(
        "TraceJobEnded", "recording {recording}: the job ended before the trace was stored", warning=True
    )
