"""Finds ranks that exited with code 0 while other ranks of their role went on.

Typical causes are uneven inputs, or a missing barrier at the end. An early end alone is no fault, because a
rank that no other rank needs may end at any time. `blame.py` makes the early end the root cause under two
conditions: another rank then fails or hangs for lack of a peer, and nothing explains that better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import PodView, RankView
from convoy_controllers.workers.faults import EarlyEnd
from convoy_controllers.workers.pod_ends import ended, failed, leaving
from convoy_crds.layout import Slot
from convoy_crds.trainingjob import ALL_ROLES_COMPLETE


def early_ends(
    observed: Observed, layout: Sequence[Slot], own: Mapping[str, PodView]
) -> tuple[EarlyEnd, ...]:
    """Return the early ends of the incarnation, the one with the fewest steps first.

    Each role is examined by itself. Roles that do not decide the job's success are skipped, because helpers
    such as data loaders end early by design. A rank that has made all its steps is not early, nor is a rank
    whose pod was asked to stop.
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
    """Return the ranks of a pod; empty if the pod was asked to stop.

    If there is no report on a pod that exited with code 0, all its ranks count as exited with code 0.
    """
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
    return rank.state == "EXITED" and not (rank.exit_code or rank.signal or rank.termination_requested)
