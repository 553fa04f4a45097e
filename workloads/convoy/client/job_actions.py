"""Which way a job can be steered as it stands. Pure."""

from __future__ import annotations

from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL


def refusal(job: TrainingJob, verb: str) -> str | None:
    """Why `verb` (suspend, resume or restart) makes no sense for the job as it is; None when it does."""
    name, phase, held = job.metadata.name, job.status.phase, job.spec.suspend
    if phase in TERMINAL:
        return (
            f"trainingjob/{name} has ended ({phase}): there is nothing to {verb}; delete it to run it again"
        )
    if verb == "suspend" and held:
        return f"trainingjob/{name} is suspended already; `convoy resume {name}` lets it run on"
    if verb == "resume" and not held:
        return f"trainingjob/{name} is not suspended: {phase or 'no operator has looked at it yet'}"
    if verb == "restart" and held:
        return f"trainingjob/{name} is suspended: `convoy resume {name}` starts it"
    return None
