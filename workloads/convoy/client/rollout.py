"""The state of a ServingJob's rollout, and the requests that this state permits. Pure."""

from __future__ import annotations

from enum import StrEnum

from convoy.client.errors import RolloutHalted
from convoy.client.pod_logs import Notify
from convoy.client.waiting import Goal
from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import ServingJob
from convoy_crds.suggest import suggestion
from convoy_crds.summaries import NOT_RECONCILED
from convoy_crds.terms import ConditionType


class RolloutState(StrEnum):
    """State of a rollout."""

    COMPLETE = "complete"
    """All replicas run the wanted revision and are ready."""
    PROGRESSING = "progressing"
    PAUSED = "paused"
    HALTED = "halted"
    """The rollout replaces no further replicas until a user corrects the job."""


def state(job: ServingJob) -> tuple[RolloutState, str]:
    """Return the state of the rollout to the newest spec, and a sentence about it."""
    status, name = job.status, job.metadata.name
    full = f"servingjob/{name}"
    if not status.observed_generation:
        return RolloutState.PROGRESSING, f"{full}: {NOT_RECONCILED}"
    if status.observed_generation < job.metadata.generation:
        return RolloutState.PROGRESSING, f"{full}: the operator has not reconciled the newest spec yet"
    if job.spec.suspend:
        return RolloutState.PAUSED, f"{full} is suspended; to go on, run: convoy resume servingjob/{name}"
    for kind in (ConditionType.VALID, ConditionType.MODEL_READY):
        wrong = _condition(job, kind)
        if wrong is not None and wrong.status == "False":
            # A checkpoint or a store that is missing may still come, for example from a job that trains.
            waits = wrong.reason == Reasons.MODEL_MISSING.name
            found = RolloutState.PROGRESSING if waits else RolloutState.HALTED
            return found, f"{full}: {wrong.message}"
    progress = _condition(job, ConditionType.PROGRESSING)
    if progress is None:
        return RolloutState.PROGRESSING, f"{full}: no revision exists yet"
    if progress.status == "Unknown":
        return RolloutState.PAUSED, f"{full}: {progress.message}"
    if progress.status == "False":
        return RolloutState.HALTED, f"{full}: {progress.message}"
    if progress.reason != Reasons.ROLLOUT_COMPLETE.name:
        return RolloutState.PROGRESSING, f"{full}: {progress.message}"
    over = RolloutState.COMPLETE if _is_complete(job) else RolloutState.PROGRESSING
    return over, f"{full}: {progress.message}, and {status.ready} replicas are ready"


def _is_complete(job: ServingJob) -> bool:
    """Return True if each role has exactly its desired replicas, all updated and ready."""
    status = job.status
    counts = all(one.desired == one.replicas == one.updated_ready for one in status.roles)
    return counts and status.current_revision == status.update_revision != ""


def _condition(job: ServingJob, kind: str) -> Condition | None:
    return next((one for one in job.status.conditions if one.type == kind), None)


def use_of(job: ServingJob, revision: str) -> str:
    """Return a text about the use of a revision: `running`, `rolling out`, `pinned`, or a dash."""
    status = job.status
    uses = []
    if revision == status.current_revision:
        uses.append("running" if revision == status.update_revision else "running before")
    elif revision == status.update_revision:
        uses.append("rolling out")
    if revision == job.spec.rollout.revision:
        uses.append("pinned")
    return ", ".join(uses) or "-"


def completion(notify: Notify) -> Goal[ServingJob]:
    """Return the goal that the rollout is complete. `notify` gets a sentence about each change before that.
    The wait raises RolloutHalted if the rollout halts.
    """
    shown = ""

    def is_over(job: ServingJob) -> bool:
        nonlocal shown
        found, sentence = state(job)
        if found is RolloutState.HALTED:
            raise RolloutHalted(sentence, job)
        if sentence != shown:
            notify(sentence)
            shown = sentence
        return found is RolloutState.COMPLETE

    return Goal("rolled out", is_over, lambda job: state(job)[1])


def pause_refusal(job: ServingJob) -> str | None:
    """Return the reason why the rollout cannot be paused; None if it can."""
    name = job.metadata.name
    if job.spec.rollout.paused:
        return (
            f"the rollout of servingjob/{name} is already paused; to go on, run: convoy rollout resume {name}"
        )
    return None


def resume_refusal(job: ServingJob) -> str | None:
    """Return the reason why the rollout cannot be resumed; None if it can."""
    name = job.metadata.name
    return None if job.spec.rollout.paused else f"the rollout of servingjob/{name} is not paused"


def unpin_refusal(job: ServingJob) -> str | None:
    """Return the reason why the job cannot go back to the revision of its spec; None if it can."""
    name = job.metadata.name
    if job.spec.rollout.revision:
        return None
    return f"servingjob/{name} already follows its spec: spec.rollout.revision is empty"


def previous_revision(job: ServingJob) -> str | None:
    """Return the revision to which an undo goes: the one that last ran in all replicas, if the newest does
    not; otherwise the newest of the others. Return None if no other revision is stored.
    """
    status = job.status
    others = [one for one in status.revisions if one.name != status.update_revision]
    if any(one.name == status.current_revision for one in others):
        return status.current_revision
    return max(others, key=lambda one: one.number).name if others else None


def undo_refusal(job: ServingJob, revision: str | None) -> str | None:
    """Return the reason why the job cannot go back to `revision`; None if it can. `revision` None stands for
    a missing previous revision.
    """
    name, rollout = job.metadata.name, job.spec.rollout
    if rollout.paused:
        return (
            f"the rollout of servingjob/{name} is paused, so no replica would be replaced; first run: "
            f"convoy rollout resume {name}"
        )
    if revision is None:
        return f"servingjob/{name} has no earlier revision"
    known = [one.name for one in job.status.revisions]
    if revision not in known:
        return f"servingjob/{name} has no stored revision {revision!r}{suggestion(revision, known)}"
    if revision == rollout.revision or (not rollout.revision and revision == job.status.update_revision):
        return f"servingjob/{name} already runs or rolls to revision {revision}"
    return None
