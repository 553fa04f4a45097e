"""Reads the result of a job that has succeeded. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_crds.job_result import MAX_RESULT_BYTES, ResultRefused, parse_result
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType


def set_result(observed: Observed, draft: Draft, first: Slot, own: Mapping[str, PodView]) -> None:
    """Set the job's result to the one that rank 0 left in the pod of the slot `first`.

    If the result is too large or malformed, set the condition ResultRefused instead. It also becomes an
    Event.
    """
    text = _text(observed, own.get(first.pod), draft.status.incarnation)
    if not text:
        return
    try:
        draft.status.result = parse_result(text)
    except ResultRefused as error:
        reason = Reasons.MALFORMED_RESULT
        message = reason.format(problem=error, most=MAX_RESULT_BYTES)
        draft.condition(ConditionType.RESULT_REFUSED, True, reason, message)
        draft.event(reason, message)


def _text(observed: Observed, pod: PodView | None, incarnation: int) -> str:
    """Return the result as rank 0 left it; empty if there is none.

    The agent reports the result with the end of the rank. Without an agent, the container's termination
    message contains it. Other text in that message is no result.
    """
    if pod is None:
        return ""
    view = observed.slots.get(pod.uid)
    if view is not None and view.incarnation == incarnation:
        for rank in view.ranks:
            if rank.rank == 0 and rank.result and not (rank.exit_code or rank.signal):
                return rank.result
    left = pod.termination_message.strip() if pod.exit_code == 0 else ""
    return left if left.startswith("{") else ""
