"""Turns in the life of a job, from the first incarnation to its end."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class LifecycleReasons:
    """Turns in the life of a job, from the first incarnation to its end."""

    BACK_OFF = Reason(
        "BackOff",
        "incarnation {incarnation} forms at {at} at the earliest, after {count} restarts; the last: {why}",
        warning=True,
    )
    FORMING = Reason("FormingProcessGroup", "incarnation {incarnation}: starting {world} ranks")
    TRAINING = Reason("Training", "incarnation {incarnation}: {world} ranks run")
    SHRUNK = Reason(
        "Shrunk",
        "incarnation {incarnation}: {world} ranks run without {absent}; they are taken in at the next "
        "checkpoint after they are up",
        warning=True,
    )
    REGROW = Reason("Regrow", "{count} pods are back: the process group forms anew with {world} ranks")
    STATUS_BEHIND = Reason(
        "StatusBehind",
        "agents know of incarnation {seen}, the stored status only of {incarnation}: it is of an earlier "
        "time, perhaps from a backup",
        warning=True,
    )
    REPEATED_ERROR = Reason(
        "RepeatedError",
        "{count} times in a row{where} the same error (spec.recovery.maxIdenticalErrors={limit}): {why}",
        warning=True,
    )
    RESTART_REQUESTED = Reason(
        "RestartRequested",
        "a restart was asked for (spec.recovery.restartId is now {restart_id!r})",
    )
    MAX_RESTARTS = Reason(
        "MaxRestartsExceeded",
        "{count} restarts within {window} s are more than spec.recovery.maxRestarts={limit}; the last: {why}",
        warning=True,
    )
    DEADLINE_EXCEEDED = Reason(
        "DeadlineExceeded", "active for more than spec.activeDeadlineSeconds={seconds} s", warning=True
    )
    SUSPENDING = Reason("Suspending", "waiting for {left} pods to leave; {state}")
    SUSPENDED = Reason("Suspended", "{state}; spec.suspend: false (convoy resume) lets it run on")
    SUSPENDED_UNSAVED = Reason(
        "SuspendedWithoutCheckpoint",
        "its last steps were not saved: {state}; see its events and its condition Checkpointing; "
        "spec.suspend: false (convoy resume) lets it run on",
        warning=True,
    )
    RESUMED = Reason("Resumed", "spec.suspend is false again")
    COMPLETED = Reason("Completed", "{what}")
    EXPIRED = Reason("Expired", "finished {seconds} s ago: deleted as spec.ttlSecondsAfterFinished asks")
