"""Ranks that ended well while others of their role went on: uneven inputs, or a missing wait at the end.

That is no fault by itself: a rank that needs no other may end whenever it is done. `blame.py` makes it the
cause where another rank fails, or hangs, for want of a peer and nothing explains that better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_ends import ended, failed, leaving
from convoy_controllers.views import PodView, RankView
from convoy_crds.layout import Slot
from convoy_crds.trainingjob import ALL_ROLES_COMPLETE


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A rank's end with exit code 0."""

    rank: int
    node: str
    pod: str
    role: str
    step: int | None = None
    """Its last; None where it made none, or nothing tells."""
    total_steps: int | None = None
    """The most that a rank of its role has to make; None where nothing tells."""
    ended: float = 0.0
    """Unix seconds; 0 where nothing tells."""

    @property
    def certain(self) -> bool:
        """Return whether steps were left to it, and not only to others."""
        return self.total_steps is not None and (self.step or 0) < self.total_steps


def early_ends(
    observed: Observed, layout: Sequence[Slot], own: Mapping[str, PodView]
) -> tuple[EarlyEnd, ...]:
    """The incarnation's early ends, that with the fewest steps first.

    A role is judged by itself, and only one that decides the job's success: helpers such as data loaders
    complete by design. A rank that made all its steps is not early, nor is one of a pod that was told to go.
    """
    deciding = (slot for slot in layout if observed.job.spec.success in (ALL_ROLES_COMPLETE, slot.role))
    by_role: dict[str, list[Slot]] = {}
    for slot in deciding:
        by_role.setdefault(slot.role, []).append(slot)
    found = [one for slots in by_role.values() for one in _of_role(observed, slots, own)]
    return tuple(sorted(found, key=lambda one: (one.step or 0, one.rank)))


def _of_role(observed: Observed, slots: Sequence[Slot], own: Mapping[str, PodView]) -> list[EarlyEnd]:
    ranks = [(slot, rank) for slot in slots for rank in _ranks(observed, slot, own)]
    well = [(slot, rank) for slot, rank in ranks if _ended_well(rank)]
    if len(well) == sum(slot.processes for slot in slots):
        return []
    total = max((rank.total_steps or 0 for _, rank in ranks), default=0) or None
    return [
        EarlyEnd(
            rank.rank, own[slot.pod].node or "", slot.pod, slot.role, rank.step or None, total, rank.ended
        )
        for slot, rank in well
        if total is None or (rank.step or 0) < total
    ]


def _ranks(observed: Observed, slot: Slot, own: Mapping[str, PodView]) -> list[RankView]:
    """The ranks of a pod that was not told to go; of one that ended well, each ended well."""
    pod = own.get(slot.pod)
    if pod is None or leaving(pod):
        return []
    view = observed.slots.get(pod.uid)
    if view is not None and view.ranks and view.incarnation == observed.job.status.incarnation:
        return list(view.ranks)
    if not ended(pod) or failed(pod):
        return []
    numbers = range(slot.rank_offset, slot.rank_offset + slot.processes)
    return [RankView(number, "EXITED") for number in numbers]


def _ended_well(rank: RankView) -> bool:
    return rank.state == "EXITED" and not (rank.exit_code or rank.signal or rank.asked)
