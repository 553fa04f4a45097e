"""Reasons for the stages of a job, from its first incarnation to its end."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class LifecycleReasons:
    """Reasons for the stages of a job, from its first incarnation to its end."""

    BACK_OFF = Reason(
        "BackOff",
        "Convoy waits after {count} restarts: incarnation {incarnation} starts at {at} at the earliest; "
        "last fault: {why}",
        warning=True,
    )
    FORMING = Reason("FormingProcessGroup", "incarnation {incarnation}: starting {world} ranks")
    TRAINING = Reason("Training", "incarnation {incarnation}: {world} ranks run")
    SHRUNK = Reason(
        "Shrunk",
        "incarnation {incarnation}: {world} ranks run without {absent}; these pods rejoin at the next "
        "checkpoint after they are ready",
        warning=True,
    )
    REGROW = Reason("Regrow", "missing pods are ready again ({count}): the job restarts with {world} ranks")
    STATUS_BEHIND = Reason(
        "StatusBehind",
        "agents report incarnation {seen}, but the stored status has incarnation {incarnation}: the "
        "status is out of date, perhaps restored from a backup",
        warning=True,
    )
    REPEATED_ERROR = Reason(
        "RepeatedError",
        "the same error occurred {count} times in a row{where} "
        "(spec.recovery.maxIdenticalErrors={limit}): {why}",
        warning=True,
    )
    RESTART_REQUESTED = Reason(
        "RestartRequested",
        "restart requested: spec.recovery.restartId is now {restart_id!r}",
    )
    MAX_RESTARTS = Reason(
        "MaxRestartsExceeded",
        "{count} restarts within {window} s exceed spec.recovery.maxRestarts={limit}; last fault: {why}",
        warning=True,
    )
    DEADLINE_EXCEEDED = Reason(
        "DeadlineExceeded",
        "the job was active for longer than spec.activeDeadlineSeconds={seconds} s",
        warning=True,
    )
    SUSPENDING = Reason("Suspending", "waiting for {left} pods to stop; {state}")
    SUSPENDED = Reason(
        "Suspended",
        "{state}; to resume, set spec.suspend: false (convoy resume), unless a batch queue holds the job",
    )
    SUSPENDED_UNSAVED = Reason(
        "SuspendedWithoutCheckpoint",
        "the last steps were not saved: {state}; see the job's events and its condition Checkpointing; to "
        "resume, set spec.suspend: false (convoy resume), unless a batch queue holds the job",
        warning=True,
    )
    RESUMED = Reason("Resumed", "spec.suspend is false again")
    MALFORMED_RESULT = Reason(
        "MalformedResult",
        "the job's result is not stored: {problem}. A result is a JSON object of at most {most} bytes, set "
        "with job.set_result or written to the file $CONVOY_RESULT",
        warning=True,
    )
    COMPLETED = Reason("Completed", "{what}")
    EXPIRED = Reason("Expired", "deleted {seconds} s after the job finished (spec.ttlSecondsAfterFinished)")
