"""What went wrong in an incarnation: the one fault that explains the others.

Exit codes of a rank are those of the engine contract: 10 parameters refused, 20 data or verification
failure, 75 preempted with its state saved, 76 lost a peer, 126/127 command not executable/not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from convoy_controllers.plan import PodView, RankView, SlotView
from convoy_crds.layout import Slot
from convoy_crds.terms import Reason, Reasons

BAD_PARAMS, BAD_DATA, PREEMPTED, PEER_LOST = 10, 20, 75, 76


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an incarnation cannot go on."""

    reason: Reason
    message: str
    rank: int | None = None
    node: str | None = None
    counted: bool = True
    """Against `recovery.maxRestarts`."""
    terminal: bool = False
    """No restart can heal it."""


def ended(pod: PodView) -> bool:
    """Whether the pod's ranks can run no more; a sidecar may still keep the pod itself Running."""
    return pod.phase in ("Succeeded", "Failed") or pod.exit_code is not None


def failed(pod: PodView) -> bool:
    """Whether the pod ended, and not well."""
    return pod.phase == "Failed" or pod.exit_code not in (None, 0)


def _rank_reason(rank: RankView, leaving: bool) -> tuple[Reason, bool, bool]:
    """The reason of a rank's exit, whether it counts, whether it is terminal.

    A preemption is free only where the pod was told to leave: a program that ends with 75 of its own accord
    must not restart for ever.
    """
    if rank.command_not_found:
        return Reasons.COMMAND_NOT_FOUND, True, True
    if rank.oom:
        return Reasons.RANK_OOM, True, False
    if rank.hung:
        return Reasons.RANK_HUNG, True, False
    if rank.signal:
        return Reasons.RANK_KILLED, True, False
    by_code = {
        BAD_PARAMS: (Reasons.BAD_PARAMS_EXIT, True, True),
        BAD_DATA: (Reasons.DATA_ERROR, True, True),
        PREEMPTED: (Reasons.PREEMPTED, not leaving, False),
        PEER_LOST: (Reasons.PEER_LOST, True, False),
    }
    return by_code.get(rank.exit_code, (Reasons.RANK_FAILED, True, False))


def rank_fault(rank: RankView, slot: Slot, node: str, hang_seconds: int, leaving: bool) -> Fault | None:
    """The fault of one rank, or None while it runs or ended well."""
    if rank.state != "EXITED" or (rank.exit_code == 0 and rank.signal == 0):
        return None
    reason, counted, terminal = _rank_reason(rank, leaving)
    tail = rank.stderr.strip()
    message = reason.format(
        rank=rank.rank,
        node=node,
        code=rank.exit_code,
        signal=rank.signal,
        seconds=hang_seconds,
        role=slot.role,
        why=tail or "not found",
        stderr=f"The end of its stderr: {tail}" if tail else "It wrote nothing to stderr.",
    )
    return Fault(reason, message, rank.rank, node, counted, terminal)


def pod_fault(pod: PodView) -> Fault | None:
    """The fault of a pod that failed or is going away, or None."""
    if failed(pod):
        text = pod.termination_message
        if pod.termination_reason in ("StartError", "ContainerCannotRun") and "python3" in text:
            reason = Reasons.NO_PYTHON
            return Fault(reason, reason.format(pod=pod.name, why=text), node=pod.node, terminal=True)
        why = pod.termination_reason or f"it exited with code {pod.exit_code}"
        why = f"{why}: {text}" if text else why
        oom = pod.termination_reason == "OOMKilled"
        counted = oom or pod.exit_code != PREEMPTED
        return _pod_lost(pod, why, counted)
    if pod.deleting:
        return _pod_lost(pod, "it is being deleted", counted=False)
    return None


def _pod_lost(pod: PodView, why: str, counted: bool) -> Fault:
    message = Reasons.POD_LOST.format(pod=pod.name, node=pod.node, why=why)
    return Fault(Reasons.POD_LOST, message, node=pod.node, counted=counted)


def missing_fault(slot: Slot) -> Fault:
    """The fault of a slot whose pod has vanished or was replaced."""
    message = Reasons.POD_LOST.format(pod=slot.pod, node="unknown", why="it was deleted")
    return Fault(Reasons.POD_LOST, message, counted=False)


def primary(faults: Iterable[Fault]) -> Fault | None:
    """The fault to blame: one that no restart heals, else one that is no echo of another's death."""
    echoes = (Reasons.PEER_LOST, Reasons.PREEMPTED)
    ranked = sorted(
        faults,
        key=lambda fault: (
            not fault.terminal,
            fault.reason in echoes,
            fault.rank is None,
            fault.rank if fault.rank is not None else -1,
        ),
    )
    return ranked[0] if ranked else None


def slot_faults(
    slot: Slot, view: SlotView, incarnation: int, hang_seconds: int, leaving: bool
) -> list[Fault]:
    """The faults of one slot's ranks in this incarnation; `leaving`: its pod was told to go."""
    if view.incarnation != incarnation:
        return []
    found = (rank_fault(rank, slot, view.node, hang_seconds, leaving) for rank in view.ranks)
    return [fault for fault in found if fault]
