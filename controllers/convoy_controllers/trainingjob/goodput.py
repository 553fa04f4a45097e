"""Keeps the goodput ledger, in which every second since the job's creation has one cause.

`Goodput.seconds` has the totals up to the time `since`. The time after `since` belongs to `cause`, which
changes only at transitions. The time of a transition comes from the component that saw it: the end of a
step, the end of a process, the last message of a node's agent. A late observation therefore does not move
seconds to another cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from convoy_controllers.views import RankView, SlotView
from convoy_crds.condition_doc import GANG, QUEUE
from convoy_crds.goodput import Cause, split, totals
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import TERMINAL, Phase, TrainingJobStatus

_QUEUE = frozenset(
    reason.name
    for reason in (
        Reasons.UNSCHEDULABLE,
        Reasons.SCHEDULE_DEADLINE,
        Reasons.WAITING_FOR_AGENT,
        Reasons.UNKNOWN_ENGINE,
        Reasons.ENGINE_NOT_READY,
        Reasons.WRONG_ROLE_KIND,
        Reasons.INVALID_PARAMS,
        Reasons.INVALID_SPEC,
        Reasons.NOTHING_TO_RESUME,
        Reasons.POD_REJECTED,
        Reasons.POD_CONFLICT,
        *GANG,
        *QUEUE,
    )
)
_LATE_STEPS = timedelta(seconds=5)
"""Time after the decision to stop the ranks. Steps that end within this time still count. Later steps come
from ranks that the operator cannot reach, and their work is lost.
"""
_STALL = timedelta(seconds=3)
_STEPPING = (Cause.PRODUCTIVE, Cause.RECOMPUTE)
_WORKING = (*_STEPPING, Cause.FINISH)
"""Causes under which ranks run their program. The time of saves and faults is subtracted from these causes.
"""
_RECOVERING = (*_WORKING, Cause.DETECT, Cause.RESTART)
"""Causes of a job that has made steps or had a fault. If such a job makes no steps, it is restarting, not
starting.
"""


@dataclass(frozen=True, slots=True)
class FaultMark:
    """A fault that this reconcile handles, or the end of all ranks."""

    at: datetime
    """Time of the fault, or of the decision if the time is not known."""
    node_lost: bool = False
    complete: bool = False
    """True if all ranks completed. The time after their last step, for example for a final save, is then no
    stall.
    """


def account(
    before: TrainingJobStatus,
    status: TrainingJobStatus,
    *,
    made: datetime | None,
    running: tuple[int, Sequence[SlotView]],
    waiting: str,
    fault_mark: FaultMark | None,
    resumed: int,
    stepped: bool,
    now: datetime,
) -> None:
    """Update the ledger in `status` to its state at `now`.

    `before` is the stored status, `status` the one that will be stored, `made` the job's creation time.
    `running` is a pair: the
    incarnation that had formed before this reconcile (0 for none), and the agents' reports on all pods of
    the job. `waiting` is the reason of the Running condition if the condition is False. `resumed` is the
    step of the checkpoint that the incarnation started from. `stepped` is True if the status has new
    progress. The goodput ratio is updated only if there is new progress or another part of the ledger
    changed.
    """
    ledger = _LedgerUpdate(before, _ms(made or now), _ms(now))
    incarnation, views = running
    ranks = [rank for view in views if view.incarnation == incarnation for rank in view.ranks]
    stepping = [rank for rank in ranks if rank.first_step]
    if incarnation and stepping:
        ledger.record_steps(stepping, resumed)
        if all(_made_all(rank) for rank in stepping):
            ledger.record_finish(max(map(_time, stepping)), fault_mark.at if fault_mark else now)
    else:
        ledger.record_late_steps([rank for view in views for rank in view.ranks if rank.step])
    if fault_mark is not None:
        ledger.record_fault(fault_mark, max((_time(rank) for rank in stepping), default=fault_mark.at))
    ledger.switch(_cause(status, waiting, ledger.cause), _ms(now))
    ledger.set_straggler_share(_straggler_share(status))
    moved = (ledger.value, ledger.record) != (before.goodput, before.internal.goodput)
    if moved or stepped:
        ledger.update_ratio()
        status.goodput, status.internal.goodput = ledger.value, ledger.record


def _cause(status: TrainingJobStatus, waiting: str, current: Cause) -> Cause | None:
    """Return the cause of the time from now on; None if the job has ended."""
    if status.phase in TERMINAL:
        return None
    if not status.formed and waiting in _QUEUE:
        return Cause.QUEUE
    if status.phase in (Phase.SUSPENDED, Phase.SUSPENDING):
        return Cause.SUSPENDED
    if status.phase is Phase.RUNNING and current in _WORKING:
        return current
    if current in _RECOVERING or status.phase is Phase.RESTARTING:
        return Cause.RESTART
    coming = (Reasons.WAITING_FOR_PODS.name, Reasons.SCHEDULE_RETRY.name)
    if status.phase is Phase.PENDING and waiting in coming:
        return Cause.SCHEDULE
    return Cause.START


def _straggler_share(status: TrainingJobStatus) -> float:
    """Return the fraction of the step time that slow ranks cost the job. Of several stragglers, the one
    with the largest fraction decides, because all ranks wait for the slowest rank.
    """
    return max((one.lost for one in status.stragglers if one.persistent and one.ranks), default=0.0)


class _LedgerUpdate:
    """The ledger while one reconcile updates it."""

    def __init__(self, before: TrainingJobStatus, made: datetime, now: datetime) -> None:
        self.value = before.goodput.model_copy(deep=True)
        self.record = before.internal.goodput.model_copy(deep=True)
        self._now = now
        if self.value.since is None:
            self.value.since = min(made, now)
            self.value.cause = Cause.SCHEDULE
        self._since: datetime = self.value.since

    @property
    def cause(self) -> Cause:
        """Return the cause of the open account, to which time is currently booked."""
        known = self.value.cause in Cause.__members__.values()
        return Cause(self.value.cause) if known else Cause.SCHEDULE

    def record_steps(self, ranks: Sequence[RankView], resumed: int) -> None:
        """Record the progress of `ranks`, the ranks of the incarnation that report steps.

        The rank with the most steps decides. A step ends only after all ranks have computed it, so all
        ranks have come this far. A rank that shows fewer steps has ended, or its report is older.
        """
        furthest = max(ranks, key=lambda rank: rank.step or 0)
        step, at = furthest.step or 0, _time(furthest)
        if self.cause is Cause.FINISH and not all(_made_all(rank) for rank in ranks):
            # The job runs another loop of steps. The time since the end of the earlier loop was only a pause,
            # so it counts as productive.
            self.switch(Cause.PRODUCTIVE, self._since)
        elif self.cause not in _WORKING:
            self.record.checkpoint = 0.0
            first = _ms(datetime.fromtimestamp(max(rank.first_step for rank in ranks), UTC))
            # The first report may come after the job has already repeated all lost steps. The repetition is
            # then assumed to have begun at the first step after the checkpoint.
            known = (step, at) if step < self.record.best else (min(resumed + 1, step), first)
            self.record.anchor_step, self.record.anchor_at = known
            self.switch(Cause.RECOMPUTE if known[0] < self.record.best else Cause.PRODUCTIVE, first)
        self._stalled = max(rank.checkpoint_seconds for rank in ranks)
        if self.cause is Cause.RECOMPUTE and step > self.record.best:
            self.switch(Cause.PRODUCTIVE, self._crossing(step, at))
        if self.cause is Cause.PRODUCTIVE:
            self.record.best = max(self.record.best, step)

    def record_finish(self, stepped: datetime, end: datetime) -> None:
        """Record that all steps are made. The time from `stepped`, the end of the last step, to `end` goes
        to the cause FINISH.

        Saves may have stalled the ranks for some time that is not booked yet. This stall time is taken from
        the time after `stepped`. If the stall time is longer than that, the rest is taken from the time
        before `stepped`.
        """
        if self.cause in _STEPPING:
            after = max(0.0, (min(end, self._now) - max(stepped, self._since)).total_seconds())
            unbooked, self._stalled = self._stalled, self._stalled - after
            self.switch(Cause.FINISH, stepped)
            self._stalled = unbooked

    def record_late_steps(self, ranks: Sequence[RankView]) -> None:
        """Record steps that ranks ended after the decision to stop them."""
        cutoff = self._since + _LATE_STEPS
        if self.cause not in _STEPPING:
            steps = (rank.step or 0 for rank in ranks if _time(rank) <= cutoff)
            self.record.best = max([self.record.best, *steps])

    _stalled: float = 0.0

    def record_fault(self, mark: FaultMark, stepped: datetime) -> None:
        """Record a fault. The time since the fault is booked as detection.

        `stepped` is the end of the last step. If the fault came more than `_STALL` later, the time since
        `stepped` is booked as detection, too: the job had stalled, or the fault interrupted a step.
        """
        if mark.node_lost and self.cause is Cause.RESTART:
            # The job has already restarted, because ranks on other nodes failed when this node was lost.
            # Without the node that restart could not succeed, so the time since the loss is booked as
            # detection.
            self.switch(Cause.DETECT, _ms(mark.at))
        elif self.cause is Cause.FINISH:
            self.switch(Cause.DETECT, _ms(mark.at))
        elif self.cause in _STEPPING:
            at = max(mark.at, stepped)
            stalled = not mark.complete and at - stepped > _STALL
            self.switch(Cause.DETECT, _ms(stepped if stalled else at))

    def switch(self, cause: Cause | None, at: datetime) -> None:
        """Close the open account at `at`, and open an account for `cause`. The account is never closed
        before its start.
        """
        if cause is self.cause:
            return
        self._close(min(max(at, self._since), self._now))
        self.value.cause = cause.value if cause else ""
        self.value.straggler = None

    def set_straggler_share(self, lost: float) -> None:
        """Set the fraction of the step time that slow ranks cost from this time on."""
        if self.cause in _STEPPING and lost != (self.value.straggler or 0.0):
            self._close(max(self._now, self._since))
            self.value.straggler = lost or None

    def update_ratio(self) -> None:
        """Update the goodput ratio and the elapsed time to their values as of now."""
        self._book_stalls(self._now)
        found = totals(self.value, self._now)
        whole = sum(found.values())
        self.value.ratio = round(found.get(Cause.PRODUCTIVE, 0.0) / whole, 4) if whole > 0 else None
        self.value.elapsed_seconds = round(whole, 3)

    def _close(self, at: datetime) -> None:
        """Book the open account up to `at`. The next account starts there."""
        if self.value.cause:
            self._book_stalls(at)
            for cause, length in split(self.value, (at - self._since).total_seconds()).items():
                self._add(Cause(cause), length)
        self.value.since = self._since = at

    def _book_stalls(self, at: datetime) -> None:
        """Book the time for which saves have stalled the steps, unless it is booked already. The open
        account then starts later by the same time, so that no second is booked twice.
        """
        unbooked = self._stalled - self.record.checkpoint
        if self.cause in _WORKING and unbooked > 0:
            held = round(min((at - self._since).total_seconds(), unbooked), 3)
            self._add(Cause.CHECKPOINT, held)
            self.record.checkpoint = round(self.record.checkpoint + held, 3)
            self.value.since = self._since = self._since + timedelta(seconds=held)

    def _add(self, cause: Cause, length: float) -> None:
        if length > 0:
            self.value.seconds[cause.value] = round(self.value.seconds.get(cause.value, 0.0) + length, 3)

    def _crossing(self, step: int, at: datetime) -> datetime:
        """Return the time at which the job reached its furthest earlier step again. All steps since
        `anchor_step` are assumed to have taken equally long.
        """
        anchor, since = self.record.anchor_step, self.record.anchor_at
        if since is None or step <= anchor or at <= since:
            return at
        share = (self.record.best - anchor) / (step - anchor)
        return _ms(since + timedelta(seconds=max(0.0, share) * (at - since).total_seconds()))


def _made_all(rank: RankView) -> bool:
    """Return True if the rank is known to make no further step."""
    over = rank.finished or (rank.state == "EXITED" and not rank.exit_code and not rank.signal)
    return bool(over or (rank.total_steps and (rank.step or 0) >= rank.total_steps))


def _time(rank: RankView) -> datetime:
    """Return the time at which the rank's newest step ended."""
    return _ms(datetime.fromtimestamp(rank.time, UTC))


def _ms(time: datetime) -> datetime:
    """Return the time rounded down to whole milliseconds, the unit of the ledger."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
