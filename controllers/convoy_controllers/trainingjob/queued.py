"""Plans a job that waits in its queue: it has no pods, and its Workload asks for quota."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.children import PatchStatus
from convoy_controllers.plan import Plan
from convoy_controllers.resources import KUEUE_WORKLOADS
from convoy_controllers.trainingjob import claiming, digests, formation, gang, queueing, workloads
from convoy_controllers.trainingjob.independent.drain import clear
from convoy_controllers.trainingjob.independent.scope import split
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import PendingRecord, Phase


def plan(observed: Observed, held: Violation, now: datetime) -> Plan:
    """Show why the job waits, and keep its Workload. The time does not count against scheduleSeconds."""
    draft = Draft(split(observed).members, now)
    status = draft.status
    clear(draft)
    draft.merge_reports(status.incarnation)
    formation.disband(status)
    status.start_time = None
    status.internal.pending = PendingRecord()
    status.internal.layout = digests.layout_digest(observed.job)
    draft.drop(ConditionType.SUSPENDED)
    draft.drop(ConditionType.RESTARTING)
    draft.drop(ConditionType.GANG_SCHEDULED)
    claiming.release(draft)
    draft.condition(ConditionType.VALID, True, Reasons.ACCEPTED, Reasons.ACCEPTED.message)
    draft.phase(Phase.PENDING, held.reason, held.message)
    draft.condition(ConditionType.SCHEDULED, False, held.reason, held.message)
    draft.condition(ConditionType.RUNNING, False, held.reason, held.message)
    queueing.report(draft, held)
    children = workloads.children(observed, now)
    wait = workloads.PATCH_SECONDS if any(isinstance(one, PatchStatus) for one in children) else None
    if KUEUE_WORKLOADS not in observed.served:
        wait = queueing.UNSERVED_SECONDS
    return Plan(
        status=draft.stored(),
        children=tuple(children),
        prune=gang.written(observed),
        events=tuple(draft.events),
        requeue_after=wait,
    )
