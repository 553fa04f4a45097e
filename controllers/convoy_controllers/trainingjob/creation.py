"""Decides which missing pods of a job are created, and what holds them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_controllers.placement.gang_state import AFTER_GROUP_SECONDS, live
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.placement.placing import Placed, PlaceOptions, place
from convoy_controllers.placement.waiting import RECHECK_SECONDS
from convoy_controllers.trainingjob import claiming, forecasting, gang, queueing
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import PodChanges, avoided, missing, pod_changes
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_crds.layout import Slot


@dataclass(frozen=True, slots=True)
class Slots:
    """The job's slots, and the state of its pods."""

    layout: tuple[Slot, ...]
    own: Mapping[str, PodView]
    """The job's own pods, by name."""
    lost: Mapping[str, str]
    """The reason why each lost node is lost, by name of the node."""
    pause: float = 0.0
    """Seconds of restart back-off that are left."""


def wanted_changes(
    observed: Observed, draft: Draft, slots: Slots, now: datetime
) -> tuple[PodChanges, GangGroup | None]:
    """Return the pods to create and to delete, and the job's gang."""
    layout, own, lost, pause = slots.layout, slots.own, slots.lost, slots.pause
    status = draft.status
    unplaced = gang.select(observed, status, own.values())
    group = gang.group(observed, status)
    found = pod_changes(observed, status, layout, own, lost, now)
    if pause > 0:
        # Without this wait a pod that fails before its incarnation forms would be recreated in a tight loop.
        found.waits.append(pause)
        return found, group
    lacking = missing(observed, status, layout, lost, found)
    blocked = (unplaced or gang.refused(observed, group)) if lacking else None
    if blocked is not None:
        claiming.release(draft)
        placed = Placed(held=blocked)
    elif (held := claiming.hold(observed, draft, lacking, avoided(observed, status, lost))) is not None:
        placed = Placed(held=held.why)
        found.check = list(lacking[:1]) if held.check else []
        found.waits.append(AFTER_GROUP_SECONDS if held.check else RECHECK_SECONDS)
    else:
        placed = _placed(observed, draft, lacking, slots, found)
    if placed.held is not None:
        found.held = placed.held
        found.waits.append(placed.recheck_seconds)
        if blocked is None and group is not None and group.backend.queues and not live(own.values()):
            # Without its PodGroup, a job that waits takes no room from others of its queue.
            group = None
    elif placed.pods and not gang.exists(observed, group):
        # The response to the apply of the PodGroup shows which of its fields the API server keeps.
        found.waits.append(AFTER_GROUP_SECONDS)
    else:
        found.create = list(placed.pods)
    return found, group


def _placed(
    observed: Observed, draft: Draft, lacking: Sequence[dict[str, Any]], slots: Slots, found: PodChanges
) -> Placed:
    """Return the missing pods with their places, near the pods that stay."""
    if gang.follows_scheduler(observed, draft.status) or queueing.chooses_places(observed):
        if forecasting.wanted(draft):
            forecasting.skip(draft, forecasting.SCHEDULER)
        return Placed(lacking)
    leaving = {deletion.name for deletion in found.delete}
    roles, pending = observed.job.spec.roles, draft.status.internal.pending
    staying = [one for one in live(slots.own.values()) if one.name not in leaving]
    options = PlaceOptions(
        avoid=avoided(observed, draft.status, slots.lost),
        spare={role.name: role.replicas - role.least for role in roles},
        restricted=not pending.cause,
        attempt=f"{observed.job.metadata.uid} {pending.since}" if pending.cause else "",
        best=forecasting.chooser(draft) if not staying else None,
    )
    packing, now = observed.job.spec.placement, draft.now.timestamp()
    return place(packing, observed.rooms, lacking, staying, options, now)
