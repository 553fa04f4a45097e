"""A job held by `spec.suspend`: its pods save their state and go, the job keeps its place."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.plan import DeletePod, Plan
from convoy_controllers.trainingjob import formation
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_crds.terms import ConditionType, Reasons
from convoy_crds.trainingjob import Phase


def plan(observed: Observed, now: datetime) -> Plan:
    """Deletes the pods with their own grace period, in which the launchers hand SIGTERM to the ranks."""
    draft = Draft(observed, now)
    status = draft.status
    draft.fold(status.incarnation)
    own = [pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid]
    formation.disband(status)
    status.start_time = status.pending_since = None
    if own:
        message = Reasons.SUSPENDING.format(left=len(own))
        draft.phase(Phase.SUSPENDING, Reasons.SUSPENDING, message)
        draft.condition(ConditionType.SUSPENDED, False, Reasons.SUSPENDING, message)
        draft.condition(ConditionType.RUNNING, False, Reasons.SUSPENDING, message)
    else:
        draft.phase(Phase.SUSPENDED, Reasons.SUSPENDED, Reasons.SUSPENDED.message)
        draft.condition(ConditionType.SUSPENDED, True, Reasons.SUSPENDED, Reasons.SUSPENDED.message)
        draft.condition(ConditionType.RUNNING, False, Reasons.SUSPENDED, Reasons.SUSPENDED.message)
        draft.drop(ConditionType.RESTARTING)
        draft.drop(ConditionType.SCHEDULED)
    return Plan(
        status=draft.stored(),
        delete=tuple(DeletePod(pod.name, pod.uid) for pod in own if not pod.deleting),
        events=tuple(draft.events),
    )
