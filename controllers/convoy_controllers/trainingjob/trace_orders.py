"""The orders by which the slots of an incarnation record a trace."""

from __future__ import annotations

from convoy_controllers.commands import TraceOrder
from convoy_crds.layout import Slot
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TrainingJobStatus

MEBIBYTE = 2**20


def trace_order(job: TrainingJob, status: TrainingJobStatus, slot: Slot) -> TraceOrder | None:
    """Return the order for the ranks of a slot; None if none of them records anything now."""
    current, record = status.trace, status.internal.trace
    if job.spec.trace is None or current is None or current.over or current.incarnation != status.incarnation:
        return None
    if current.first_step is None or current.last_step is None:
        return None
    own = range(slot.rank_offset, slot.rank_offset + slot.processes)
    ranks = tuple(rank for rank in current.ranks if rank in own)
    if not ranks:
        return None
    return TraceOrder(
        recording=current.recording,
        attempt=record.attempt,
        first=current.first_step,
        count=current.last_step - current.first_step + 1,
        ranks=ranks,
        store=current.store,
        max_bytes=record.order.max_mebibytes * MEBIBYTE,
    )


def ordered(order: TraceOrder | None) -> tuple[int, int]:
    """Return the recording and the attempt of an order, as agents report them."""
    return (order.recording, order.attempt) if order else (0, 0)
