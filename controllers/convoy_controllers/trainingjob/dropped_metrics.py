"""Sets the condition MetricsDropped. It is True if the ranks report metrics that Convoy does not keep.
Pure.
"""

from __future__ import annotations

from convoy_controllers.trainingjob.status import Draft
from convoy_crds.metric_names import MAX_OWN_METRICS
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.summaries import shorten_list
from convoy_crds.terms import ConditionType

MAX_NAMES_LISTED = 8
"""Maximum number of dropped metrics that the message names. The message only counts the others."""


def set_condition(draft: Draft) -> None:
    """Set the condition from the metrics that ranks of this incarnation report. A new condition also
    becomes an Event.

    The condition stays until ranks report metrics and Convoy keeps all of them. Before the ranks of an
    incarnation have reported a metric, nothing changes.
    """
    observed, status = draft.observed, draft.status
    engine = observed.job.spec.engine
    found = {
        one.name
        for view in observed.slots.values()
        if view.incarnation == status.incarnation
        for rank in view.ranks
        for one in rank.metrics
    }
    if not found or (engine is not None and observed.engine is None):
        return
    kept = {one.name for one in status.progress.metrics} if status.progress else set()
    dropped = sorted(found - kept)
    if not dropped:
        draft.drop(ConditionType.METRICS_DROPPED)
        return
    names = shorten_list(dropped, MAX_NAMES_LISTED)
    if engine is not None:
        reason = Reasons.UNDECLARED_METRICS
        message = reason.format(engine=engine.name, count=len(dropped), names=names)
    else:
        reason = Reasons.TOO_MANY_METRICS
        message = reason.format(count=len(found), most=MAX_OWN_METRICS, names=names)
    if all(one.type != ConditionType.METRICS_DROPPED for one in status.conditions):
        draft.event(reason, message)
    draft.condition(ConditionType.METRICS_DROPPED, True, reason, message)
