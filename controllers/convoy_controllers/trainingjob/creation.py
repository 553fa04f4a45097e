"""Decides which missing pods of a job are created, and what holds them back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.placement.placing import RECHECK_SECONDS, Placed
from convoy_controllers.trainingjob import claiming, gang
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import PodChanges, missing, pod_changes
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot

AFTER_GROUP_SECONDS = 0.05
"""Seconds after the request for the PodGroup at which the pods are created."""


def wanted_changes(
    observed: Observed,
    draft: Draft,
    layout: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
    *,
    pause: float,
    now: datetime,
) -> tuple[PodChanges, GangGroup | None]:
    """Return the pods to create and to delete, and the job's gang. `pause`: seconds of restart back-off that
    are left.
    """
    status = draft.status
    unplaced = gang.select(observed, status, own.values())
    group = gang.group(observed, status)
    found = pod_changes(observed, status, layout, own, lost, now)
    if pause > 0:
        # Without this wait a pod that fails before its incarnation forms would be recreated in a tight loop.
        found.waits.append(pause)
        return found, group
    unplaced = unplaced or gang.refused(observed, group)
    placed = Placed(held=unplaced) if unplaced else missing(observed, status, layout, lost, found.delete)
    held = placed.held or claiming.hold(observed, draft, placed.pods)
    if held is not None:
        _hold(found, held)
    elif placed.pods and not gang.exists(observed, group):
        # The response to the apply of the PodGroup shows which of its fields the API server keeps.
        found.waits.append(AFTER_GROUP_SECONDS)
    else:
        found.create = list(placed.pods)
    return found, group


def _hold(found: PodChanges, reason: Violation) -> None:
    found.held = reason
    found.waits.append(RECHECK_SECONDS)
