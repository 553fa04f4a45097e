"""The one fault that explains the others: causes before echoes, and of causes the earliest.

In a synchronous job one rank's end takes all others down, and one rank's hang makes all others hang. An echo
is told from its cause by, in this order: its kind (exit code 76), its last words (a collective failed), the
place of its main thread (in a collective or elsewhere), its last step, the time of its end. Clocks of nodes
differ, so a kind that is never an echo is dated back (`Policy.lead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convoy_controllers.trainingjob.early import EarlyEnd
from convoy_controllers.trainingjob.faults import Fault
from convoy_controllers.trainingjob.pod_ends import killed
from convoy_crds.reasons.catalogue import Reasons

CLOCK_SECONDS = 2.0
"""Between the clocks of two nodes, at most."""
SHOWN = 5
"""Ranks that a message lists."""

_OUTSIDE = (
    Reasons.POD_DELETED,
    Reasons.POD_PREEMPTED,
    Reasons.POD_EVICTED,
    Reasons.NODE_DRAINED,
    Reasons.STRAGGLER_SWAPPED,
    Reasons.CONTAINER_OOM,
    Reasons.CONTAINER_STOPPED,
    Reasons.POD_DEADLINE,
    Reasons.STORAGE_LIMIT,
)
"""Ends of pods that no rank brings about."""
_SOFT = (Reasons.RANK_FAILED, Reasons.RANK_CRASHED)
"""Ends that a program may make of a lost peer, or of SIGTERM, in words of its own."""


def primary(
    faults: Iterable[Fault], early: Sequence[EarlyEnd] = (), running: Sequence[int] = ()
) -> Fault | None:
    """The fault to blame: one that no restart heals, else a node's loss, else no echo, else the earliest.

    `early`: ranks that ended well while others went on; the first that explains an echo is the cause of it.
    `running`: ranks of the incarnation that still run; their end may explain more.
    """
    marked = _marked(list(faults))
    if not marked:
        return None
    found = min(marked, key=_order)
    if victims := [fault for fault in marked if any(_explains(one, fault) for one in early)]:
        found = _ended_early(early, victims) if found in victims else found
    if not found.at:
        # Where it is not known when it happened, its earliest echo tells.
        found = replace(found, at=min((fault.at for fault in marked if fault.at), default=0.0))
    if found.echo and found.timed_out and running:
        found = replace(found, message=f"{found.message} {_silent(running)}")
    return replace(found, awaits=bool(running))


def _order(fault: Fault) -> tuple[bool, bool, bool, bool, bool, float, int]:
    return (
        not fault.policy.terminal,
        fault.reason is not Reasons.NODE_LOST,
        fault.echo,
        # A rank leaves with its state saved on purpose, others lose it.
        fault.echo and fault.reason is not Reasons.PREEMPTED,
        fault.rank is None,
        (fault.ended or fault.at or float("inf")) - fault.policy.lead,
        fault.rank if fault.rank is not None else -1,
    )


def _marked(faults: list[Fault]) -> list[Fault]:
    """The faults, those marked that another explains although their kind does not say so."""
    return _mark_hangs([replace(one, consequence=True) if _follows(one, faults) else one for one in faults])


def _follows(fault: Fault, faults: Iterable[Fault]) -> bool:
    """Return whether it follows from what happened to a pod: SIGTERM in its own, a lost peer in others."""
    if fault.consequence:
        return True
    if fault.rank is None or fault.reason not in _SOFT:
        return False
    return any(_brings_down(pod, fault, faults) for pod in faults if pod.rank is None)


def _brings_down(pod: Fault, fault: Fault, faults: Iterable[Fault]) -> bool:
    if pod.reason is Reasons.POD_LOST:
        # A launcher that was not killed ends as its ranks do.
        return killed(pod.exit_code) and not any(
            one.pod == pod.pod and one.rank is not None for one in faults
        )
    before = not pod.ended or not fault.ended or fault.ended >= pod.ended - CLOCK_SECONDS
    return pod.reason in _OUTSIDE and before


def _mark_hangs(faults: list[Fault]) -> list[Fault]:
    """One rank that hangs makes all of its role hang; the watchdog of each strikes.

    A rank that waits in a collective does so for another. Of the rest, one that waits for nobody is at fault,
    else the one with the fewest steps. Where nothing tells, no node is blamed.
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
    """Return whether a rank's early end may be why another failed or hung."""
    if early.ended and fault.ended and fault.ended < early.ended - CLOCK_SECONDS:
        return False
    if fault.reason is Reasons.RANK_HUNG:
        return fault.waits_for_others is not False
    if fault.reason is Reasons.RANK_FAILED and not fault.consequence:
        # Its words tell of no peer. Steps were left, and it made none without the other.
        return early.certain and (fault.step or 0) <= (early.step or 0)
    return fault.echo and fault.reason is not Reasons.PREEMPTED


def _ended_early(early: Sequence[EarlyEnd], victims: list[Fault]) -> Fault:
    """The fault of the first rank that ended early, at the time of its first consequence."""
    first = next(one for one in early if any(_explains(one, fault) for fault in victims))
    victim = min(victims, key=_order)
    known = [fault.at for fault in victims if fault.at]
    message = Reasons.ENDED_EARLY.format(
        rank=first.rank,
        node=first.node,
        when=_when(first),
        more=_others([one.rank for one in early if one is not first]),
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


def _others(ranks: Sequence[int]) -> str:
    """The other ranks that ended early."""
    return f", as did {_named(ranks)}" if ranks else ""


def _silent(ranks: Sequence[int]) -> str:
    """The ranks to look at where others waited in vain, and no watchdog has struck."""
    return f"Still running: {_named(ranks)}; look there for what held up the others (convoy logs)."


def _named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 3, 4`: a few of them by number."""
    shown = ", ".join(str(rank) for rank in ranks[:SHOWN])
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _then(fault: Fault) -> str:
    who = f"rank {fault.rank}" if fault.rank is not None else f"pod {fault.pod}"
    if fault.hang:
        return f"Then {who} made no step any more."
    return f"Then {who} failed" + (f": {fault.last_words}" if fault.last_words else ".")
