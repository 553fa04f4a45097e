"""Picks the root cause among the faults of an incarnation.

In a synchronous job, the end of one rank ends all others, and one hung rank hangs all others. A fault that
another fault causes is called an echo.

The following evidence distinguishes an echo from its cause, in this order:

- the kind of fault (exit code 76),
- the last lines on stderr (a failed collective),
- the code in which the main thread hangs (a collective or other code),
- the last step,
- the time of the end.

The clocks of nodes differ, so time alone is not reliable. Faults that are never an echo are therefore
sorted as if they had happened some seconds earlier (`Policy.lead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from convoy_controllers.workers.faults import ASKED_TO_END, EarlyEnd, Fault
from convoy_controllers.workers.pod_ends import killed
from convoy_crds.reasons.catalogue import Reasons

CLOCK_SECONDS = 2.0
"""Maximum assumed difference between the clocks of two nodes, in seconds."""
ECHO_SECONDS = 0.5
"""Seconds to wait, after the end of a rank that lost a peer, for the report of that peer's own end."""
HANG_SECONDS = 3.0
"""Seconds to wait for the cause after a rank hung, or after its wait for a peer timed out. The watchdogs of
all ranks act within this time.
"""
CONTAINER_SECONDS = 4.0
"""Seconds to wait for the cause after a launcher has disconnected. Within this time, the kubelet reports
why the launcher's container ended.
"""
MAX_RANKS_SHOWN = 5
"""Maximum number of ranks that a message lists."""

_OUTSIDE = (
    Reasons.POD_DELETED,
    Reasons.YIELDED,
    Reasons.POD_PREEMPTED,
    Reasons.POD_EVICTED,
    Reasons.NODE_DRAINED,
    Reasons.STRAGGLER_SWAPPED,
    Reasons.SUSPECT_SWAPPED,
    Reasons.CONTAINER_OOM,
    Reasons.CONTAINER_STOPPED,
    Reasons.POD_DEADLINE,
    Reasons.STORAGE_LIMIT,
)
"""Reasons for the end of a pod. A failure of a rank never leads to one of them."""
_SOFT = (Reasons.RANK_FAILED, Reasons.RANK_CRASHED)
"""Reasons for the end of a rank that may be the consequence of a lost peer or of SIGTERM. In both cases the
program itself decides how it ends.
"""


def primary(
    faults: Iterable[Fault], early: Sequence[EarlyEnd] = (), running: Sequence[int] = ()
) -> Fault | None:
    """Return the root cause of the faults; None if there are no faults.

    The root cause is the first of these that exists: a fault that no restart heals, a lost node, a fault
    that is no echo, the earliest fault. `early` are the ranks that exited with code 0 while others went on.
    If such an exit explains this fault, the exit is the root cause. `running` are the ranks of the
    incarnation that still run. When they end, their reports may show another root cause.
    """
    marked = _mark_consequences(list(faults))
    if not marked:
        return None
    found = min(marked, key=_order)
    if victims := [fault for fault in marked if any(_explains(one, fault) for one in early)]:
        found = _ended_early(early, victims) if found in victims else found
    if not found.at:
        # If the time of the root cause is not known, the time of the earliest fault is used.
        found = replace(found, at=min((fault.at for fault in marked if fault.at), default=0.0))
    if found.echo and found.timed_out and running:
        found = replace(found, message=f"{found.message} {_advise_running(running)}")
    return replace(found, awaits=bool(running))


def root_cause_wait(fault: Fault, report_due: bool, now: datetime) -> float:
    """Return the seconds to wait for the root cause; 0 if the fault itself is the cause.

    The job waits after an echo, an early end and a hang. It also waits if SIGTERM ended a rank: the rank's
    pod may have been deleted, and the report of the deletion may come later. `report_due` is the result of
    `cause_report_due`.
    """
    hung = fault.awaits and (fault.hang or fault.timed_out)
    early = fault.reason is Reasons.ENDED_EARLY
    cause_may_follow = fault.echo or fault.exit_code == ASKED_TO_END or early or hung
    happened = fault.ended or (0.0 if fault.hang else fault.at)
    if not cause_may_follow or not happened or fault.free:
        return 0.0
    most = CONTAINER_SECONDS if report_due else HANG_SECONDS if hung else ECHO_SECONDS
    left = happened + most - now.timestamp()
    # Normally at most `most` seconds are left. If clearly more seconds are left, the clocks of the node and
    # the operator differ, and the job does not wait.
    return left if 0 < left <= most + ECHO_SECONDS else 0.0


def _order(fault: Fault) -> tuple[bool, bool, bool, bool, bool, float, int]:
    return (
        not fault.policy.terminal,
        fault.reason is not Reasons.NODE_LOST,
        fault.echo,
        # Among echoes, a preempted rank comes first. It stopped on request after it had saved its state. The
        # other ranks failed only because this rank was gone.
        fault.echo and fault.reason is not Reasons.PREEMPTED,
        fault.rank is None,
        (fault.ended or fault.at or float("inf")) - fault.policy.lead,
        fault.rank if fault.rank is not None else -1,
    )


def _mark_consequences(faults: list[Fault]) -> list[Fault]:
    """Return the faults, with `consequence` set on every fault that another fault explains. The reason of
    such a fault does not show that it is an echo.
    """
    return _mark_hangs(
        [replace(one, consequence=True) if _follows_pod_end(one, faults) else one for one in faults]
    )


def _follows_pod_end(fault: Fault, faults: Iterable[Fault]) -> bool:
    """Return True if a rank's fault is the consequence of the end of a pod. Either the rank itself got
    SIGTERM in that pod, or the rank lost a peer that ran in that pod.
    """
    if fault.consequence:
        return True
    if fault.rank is None or fault.reason not in _SOFT:
        return False
    return any(_brings_down(pod, fault, faults) for pod in faults if pod.rank is None)


def _brings_down(pod: Fault, fault: Fault, faults: Iterable[Fault]) -> bool:
    if pod.reason is Reasons.POD_LOST:
        # A launcher exits only after its ranks, unless it is killed. If it was not killed, the ranks ended
        # first, so the end of the pod is not the cause of their faults.
        return killed(pod.exit_code) and not any(
            one.pod == pod.pod and one.rank is not None for one in faults
        )
    before = not pod.ended or not fault.ended or fault.ended >= pod.ended - CLOCK_SECONDS
    return pod.reason in _OUTSIDE and before


def _mark_hangs(faults: list[Fault]) -> list[Fault]:
    """Return the faults, with `consequence` set on hung ranks that only wait for another rank.

    One hung rank makes all ranks of its role hang, and the watchdog of each rank reports a hang. A rank
    that hangs in a collective only waits for another rank. The suspects are the ranks known to hang outside
    a collective. If there are none, the suspects are the ranks for which nobody knows where they hang. In
    each role, the suspects with the fewest steps are at fault. If several ranks are at fault, no node is
    blamed.
    """
    hangs = [fault for fault in faults if fault.hang and not fault.waits_for_others]
    kept: list[Fault] = []
    for role in dict.fromkeys(fault.role for fault in hangs):
        kept += _suspects([fault for fault in hangs if fault.role == role])
    marks = {id(fault): replace(fault, unclear=len(kept) > 1) for fault in kept}
    return [
        marks.get(id(fault), replace(fault, consequence=True)) if fault.hang else fault for fault in faults
    ]


def _suspects(hangs: list[Fault]) -> list[Fault]:
    left = [fault for fault in hangs if fault.waits_for_others is False] or hangs
    fewest = min(fault.step or 0 for fault in left)
    return [fault for fault in left if (fault.step or 0) == fewest]


def _explains(early: EarlyEnd, fault: Fault) -> bool:
    """Return True if the early end of a rank may be the reason why another rank failed or hung."""
    if early.ended and fault.ended and fault.ended < early.ended - CLOCK_SECONDS:
        return False
    if fault.reason is Reasons.RANK_HUNG:
        return fault.waits_for_others is not False
    if fault.reason is Reasons.RANK_FAILED and not fault.consequence:
        # The stderr of the failed rank does not mention a peer. The early end explains the failure under two
        # conditions: the early rank had steps left, and the failed rank did not get beyond the early rank's
        # last step.
        return early.certain and (fault.step or 0) <= (early.step or 0)
    return fault.echo and fault.reason is not Reasons.PREEMPTED


def _ended_early(early: Sequence[EarlyEnd], victims: list[Fault]) -> Fault:
    """Return a fault for the first rank whose early end explains one of the victims. The fault gets the
    time of the earliest victim.
    """
    first = next(one for one in early if any(_explains(one, fault) for fault in victims))
    victim = min(victims, key=_order)
    known = [fault.at for fault in victims if fault.at]
    message = Reasons.ENDED_EARLY.format(
        rank=first.rank,
        node=first.node,
        when=_when(first),
        more=_also_ended([one.rank for one in early if one is not first]),
        then=_then(victim),
    )
    return Fault(
        Reasons.ENDED_EARLY,
        message,
        first.rank,
        first.node,
        first.pod,
        exit_code=0,
        step=first.step,
        at=min(known, default=0.0),
        ended=victim.ended,
        role=first.role,
        timed_out=any(fault.timed_out or fault.hang for fault in victims),
    )


def _when(early: EarlyEnd) -> str:
    if early.step is None:
        return "before its first step" if early.ended else "at a step that no agent has reported"
    return f"after step {early.step}" + (f" of {early.total_steps}" if early.total_steps else "")


def _also_ended(ranks: Sequence[int]) -> str:
    """Return the part of a sentence that names the other ranks that ended early; empty if there are none."""
    return f", as did {_list_ranks(ranks)}," if ranks else ""


def _advise_running(ranks: Sequence[int]) -> str:
    """Return the sentence that advises a person to check the ranks that still run."""
    return f"Still running: {_list_ranks(ranks)}. Check there why the others had to wait (convoy logs)."


def _list_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as text, such as `rank 3` or `ranks 3, 4`, with at most MAX_RANKS_SHOWN numbers."""
    shown = ", ".join(str(rank) for rank in ranks[:MAX_RANKS_SHOWN])
    more = f" and {len(ranks) - MAX_RANKS_SHOWN} more" if len(ranks) > MAX_RANKS_SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _then(fault: Fault) -> str:
    who = f"rank {fault.rank}" if fault.rank is not None else f"pod {fault.pod}"
    if fault.hang:
        return f"Then {who} stopped making steps."
    return f"Then {who} failed" + (f": {fault.stderr_end}" if fault.stderr_end else ".")
