"""Checks whether the state of a job permits suspend, resume or restart. Pure."""

from __future__ import annotations

from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL


def refusal(job: TrainingJob, verb: str) -> str | None:
    """Return the reason why the job's state does not permit `verb` (suspend, resume or restart); None if it
    permits `verb`.
    """
    name, phase, held = job.metadata.name, job.status.phase, job.spec.suspend
    if phase in TERMINAL:
        return (
            f"trainingjob/{name} has ended ({phase}): there is nothing to {verb}; "
            "to run it again, delete it and create it again"
        )
    if verb == "suspend" and held:
        return f"trainingjob/{name} is already suspended; `convoy resume {name}` continues it"
    if verb == "resume" and not held:
        return f"trainingjob/{name} is not suspended: {phase or 'no operator has reconciled it yet'}"
    if verb == "restart" and held:
        return f"trainingjob/{name} is suspended: `convoy resume {name}` continues it"
    return None
