"""Merges the progress of a job from its ranks' reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from convoy_controllers.trainingjob import metrics
from convoy_controllers.views import SlotView
from convoy_crds.trainingjob_status import CheckpointStatus, Progress, Watermark, Watermarks

TIERS = ("local", "peer", "remote")
"""Checkpoint tiers, the nearest first."""


def merge_progress(
    views: Iterable[SlotView], incarnation: int, stored: Progress | None, allowed: Sequence[str] | None = None
) -> Progress | None:
    """Return the progress of the slowest rank. Loss, rate and metrics each come from the rank with the
    lowest number that reports them.

    The stored progress stays until a rank of this incarnation reports a step. `allowed` is the result of
    `metrics.declared`.
    """
    ranks = sorted(
        (
            rank
            for view in views
            if view.incarnation == incarnation
            for rank in view.ranks
            if rank.step is not None
        ),
        key=lambda rank: rank.rank,
    )
    if not ranks:
        return stored
    slowest = min(ranks, key=lambda rank: rank.step or 0)
    step = slowest.step or 0
    total = next((rank.total_steps for rank in ranks if rank.total_steps), None)
    telling = next((rank for rank in ranks if rank.loss is not None or rank.diverged), None)
    loss = telling.loss if telling and not telling.diverged else None
    rate = next((rank.samples_per_second for rank in ranks if rank.samples_per_second is not None), None)
    time = datetime.fromtimestamp(slowest.time, UTC).replace(microsecond=0)
    if stored is not None and stored.step == step and stored.total_steps == total:
        time = stored.time or time
    return Progress(
        step=step,
        total_steps=total,
        percent=min(100, 100 * step // total) if total else None,
        samples_per_second=round(rate, 3) if rate else None,
        loss=round(loss, 6) if loss is not None else None,
        metrics=metrics.merge(metrics.reported(ranks), stored.metrics if stored else (), allowed),
        diverged=True if telling and telling.diverged else None,
        eta_at=_eta(stored, step, total, time),
        time=time,
    )


def _eta(stored: Progress | None, step: int, total: int | None, time: datetime) -> datetime | None:
    """Return the time at which the last step will end, at the pace since the stored progress; None if not
    known.
    """
    if total is None or step >= total or stored is None or stored.time is None:
        return None
    steps, elapsed = step - stored.step, (time - stored.time).total_seconds()
    if steps <= 0 or elapsed <= 0:
        return stored.eta_at
    return (time + timedelta(seconds=(total - step) * elapsed / steps)).replace(microsecond=0)


def newest_checkpoint(views: Iterable[SlotView], stored: CheckpointStatus | None) -> CheckpointStatus | None:
    """Return the newest generation that any agent saw committed, and the newest generation of each tier.
    Reports of generations older than `stored` change nothing.
    """
    marks = stored.watermarks.model_copy() if stored else Watermarks()
    for view in views:
        for tier, commit in view.committed.items():
            if tier not in TIERS:
                continue
            known: Watermark | None = getattr(marks, tier)
            if known is None or (commit.incarnation, commit.step) > (known.incarnation, known.step):
                time = datetime.fromtimestamp(commit.time, UTC).replace(microsecond=0)
                mark = Watermark(incarnation=commit.incarnation, step=commit.step, time=time)
                setattr(marks, tier, mark)
    found: list[tuple[tuple[int, int], int, str, Watermark]] = [
        ((mark.incarnation, mark.step), rank, tier, mark)
        for rank, tier in enumerate(TIERS)
        if (mark := getattr(marks, tier)) is not None
    ]
    if not found:
        return stored
    _, _, tier, newest = max(found, key=lambda one: one[:2])
    return CheckpointStatus(
        incarnation=newest.incarnation,
        step=newest.step,
        tier=tier,
        time=newest.time,
        watermarks=marks,
        interval=stored.interval if stored else None,
        tiers=stored.tiers if stored else None,
    )
