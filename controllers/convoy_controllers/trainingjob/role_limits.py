"""The most pods that each role may have: the least of what its SpotPool grants and its queue has admitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.trainingjob import spot
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.quota import QuotaRooms
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot


class RoleLimits:
    """The room that is left for further pods of each role."""

    def __init__(self, observed: Observed, layout: Iterable[Slot], own: Mapping[str, PodView]) -> None:
        """`own`: the job's own pods that stay, by name."""
        slots = tuple(layout)
        self._spot = spot.SpotRooms(spot.grants(observed), slots, own)
        self._quota = QuotaRooms(observed, slots, own)

    @property
    def held(self) -> Violation | None:
        """Return the reason why a pod within all limits cannot be created; None if there is none."""
        return self._quota.held

    def place(self, slot: Slot, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of a slot's pod with the settings of its pool and queue; None if there is no
        room for it.
        """
        if not self._quota.allows(slot):
            return None
        placed = self._spot.place(slot, body)
        if placed is None:
            return None
        self._quota.reserve(slot)
        return self._quota.place(slot, placed)

    def reserve(self, slot: Slot) -> bool:
        """Return True if there is room for the slot's pod. The room is then used up."""
        if not self._quota.allows(slot) or not self._spot.reserve(slot):
            return False
        self._quota.reserve(slot)
        return True
