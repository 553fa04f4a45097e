"""What went wrong in an incarnation: the one fault that explains the others.

Exit codes of a rank are those of the engine contract: 10 parameters refused, 20 data or verification
failure, 69 nothing to go on from while the store is away, 75 preempted with its state saved, 76 lost a peer,
126/127 command not executable/not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from convoy_controllers.plan import ENDED_PHASES, NodeView, PodView, RankView, SlotView
from convoy_controllers.trainingjob.policy import Policy, policy
from convoy_crds.layout import Slot
from convoy_crds.nodehealth import State
from convoy_crds.terms import LABEL_NODE_HEALTH, Reason, Reasons

BAD_PARAMS, BAD_DATA, STORE_AWAY, PREEMPTED, PEER_LOST = 10, 20, 69, 75, 76
SIGKILL, SIGTERM = 9, 15
ASKED_TO_END = 128 + SIGTERM
"""Exit code of a rank that ended by SIGTERM, which is the kubelet's when a pod is deleted."""
_CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
"""Signals that a program brings upon itself, by their Linux numbers."""
_GIST = 400
"""Characters of a rank's stderr in a message; all that is left of it is in the pod's log."""

_BY_CODE = {
    BAD_PARAMS: Reasons.BAD_PARAMS_EXIT,
    BAD_DATA: Reasons.DATA_ERROR,
    STORE_AWAY: Reasons.STORE_AWAY,
    PREEMPTED: Reasons.PREEMPTED,
    PEER_LOST: Reasons.PEER_LOST,
}
_EVICTIONS = {
    "EvictionByEvictionAPI": "through the eviction API",
    "DeletionByTaintManager": "its node has a taint that it does not tolerate",
    "TerminationByKubelet": "its node lacks a resource or shuts down",
    "DeletionByPodGC": "its node is gone",
}
"""Reasons of the DisruptionTarget condition (Kubernetes, KEP-3329), but for the scheduler's own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an incarnation cannot go on."""

    reason: Reason
    message: str
    rank: int | None = None
    node: str | None = None
    pod: str | None = None
    exit_code: int | None = None
    step: int | None = None
    """The last step of the rank at fault."""
    at: float = 0.0
    """Unix seconds at which it happened; 0 when that is not known."""
    free: bool = False
    """Does not count although its kind does."""

    @property
    def policy(self) -> Policy:
        """What its kind costs and replaces."""
        return policy(self.reason)

    @property
    def counted(self) -> bool:
        """Against `recovery.maxRestarts`."""
        return self.policy.counted and not self.free


def ended(pod: PodView) -> bool:
    """Whether the pod's ranks can run no more; a sidecar may still keep the pod itself Running."""
    return pod.phase in ENDED_PHASES or pod.exit_code is not None


def failed(pod: PodView) -> bool:
    """Whether the pod ended, and not well."""
    return pod.phase == "Failed" or pod.exit_code not in (None, 0)


def _rank_reason(rank: RankView) -> Reason:
    if rank.command_not_found:
        return Reasons.COMMAND_NOT_FOUND
    if rank.oom:
        return Reasons.RANK_OOM
    if rank.hung:
        return Reasons.RANK_HUNG
    if rank.signal:
        return Reasons.RANK_CRASHED if rank.signal in _CRASHES else Reasons.RANK_KILLED
    return _BY_CODE.get(rank.exit_code, Reasons.RANK_FAILED)


def gist(stderr: str) -> str:
    """The end of a rank's stderr that says the most: its last line, which of a traceback names the error,
    with what is indented below it."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    last = max((number for number, line in enumerate(lines) if not line[0].isspace()), default=0)
    # Pydantic's own pointer to its manual.
    kept = [line.strip() for line in lines[last:] if "For further information visit" not in line]
    return " ".join(kept)[:_GIST]


def rank_fault(
    rank: RankView, slot: Slot, node: str, hang_seconds: int, leaving: bool, store_away: str = ""
) -> Fault | None:
    """The fault of one rank, or None while it runs or ended well.

    `store_away`: what its agent says of a store that the restore waits for. A preemption is free only where
    the pod was told to leave, and to be without the store only where the agent is: a program that ends with
    these codes of its own accord must not restart for ever.
    """
    if rank.state != "EXITED" or (rank.exit_code == 0 and rank.signal == 0):
        return None
    if leaving and rank.exit_code in (ASKED_TO_END, 128 + SIGKILL) and not (rank.oom or rank.hung):
        return None  # its pod's going away is the fault
    reason = _rank_reason(rank)
    if reason is Reasons.STORE_AWAY and not store_away:
        reason = Reasons.RANK_FAILED
    last = gist(rank.stderr)
    by_kernel = rank.signal == SIGKILL and not rank.hung
    message = reason.format(
        rank=rank.rank,
        node=node,
        code=rank.exit_code,
        signal=rank.signal,
        signal_name=_CRASHES.get(rank.signal, ""),
        who=", by hand or by the node's out-of-memory killer" if by_kernel else "",
        seconds=hang_seconds,
        role=slot.role,
        why=store_away or last or "not found",
        stderr=f"Its last words: {last}" if last else "It wrote nothing to stderr.",
    )
    return Fault(
        reason,
        message,
        rank.rank,
        node,
        slot.pod,
        exit_code=rank.exit_code,
        step=rank.step,
        # A hung rank stood still since its last step; its process ended only when it was killed for that.
        at=(rank.time or rank.ended) if rank.hung else rank.ended,
        free=leaving and reason is Reasons.PREEMPTED,
    )


def pod_fault(pod: PodView, node: NodeView | None) -> Fault | None:
    """The fault of a pod that failed or is going away, or None."""
    if pod.disruption == "PreemptionByScheduler":
        return _of_pod(pod, Reasons.POD_PREEMPTED)
    if pod.disruption == "EvictionByEvictionAPI" and node is not None:
        if node.cordoned:
            return _of_pod(pod, Reasons.NODE_DRAINED)
        if node.labels.get(LABEL_NODE_HEALTH) == State.DRAINING:
            return _of_pod(pod, Reasons.STRAGGLER_SWAPPED)
    if (failed(pod) or pod.deleting) and pod.disruption:
        return _of_pod(pod, Reasons.POD_EVICTED, _EVICTIONS.get(pod.disruption, pod.disruption))
    if failed(pod) and pod.exit_code is None:
        why = f"{pod.termination_reason}: {pod.termination_message}".strip(": ")
        return _of_pod(pod, Reasons.POD_NOT_ADMITTED, why or "its kubelet does not say why")
    if failed(pod):
        text = pod.termination_message
        if pod.termination_reason in ("StartError", "ContainerCannotRun") and "python3" in text:
            return _of_pod(pod, Reasons.NO_PYTHON, text)
        if pod.termination_reason == "OOMKilled":
            return _of_pod(pod, Reasons.CONTAINER_OOM)
        why = pod.termination_reason or f"it exited with code {pod.exit_code}"
        return _of_pod(pod, Reasons.POD_LOST, f"{why}: {text}" if text else why)
    if pod.deleting:
        return _of_pod(pod, Reasons.POD_DELETED)
    return None


def _of_pod(pod: PodView, reason: Reason, why: str = "") -> Fault:
    message = reason.format(pod=pod.name, node=pod.node, why=why)
    # The launcher ends with this code where its ranks had saved their state.
    free = reason is Reasons.POD_LOST and pod.exit_code == PREEMPTED
    return Fault(reason, message, node=pod.node, pod=pod.name, exit_code=pod.exit_code, free=free)


def missing_fault(slot: Slot) -> Fault:
    """The fault of a slot whose pod has vanished or was replaced."""
    return Fault(Reasons.POD_DELETED, Reasons.POD_DELETED.format(pod=slot.pod, node="unknown"), pod=slot.pod)


def node_fault(pod: PodView, node: NodeView, why: str) -> Fault:
    """The fault of a pod whose node is lost; it happened when its agent was last heard of."""
    message = Reasons.NODE_LOST.format(node=node.name, pod=pod.name, why=why)
    return Fault(Reasons.NODE_LOST, message, node=node.name, pod=pod.name, at=node.silent_since)


def primary(faults: Iterable[Fault]) -> Fault | None:
    """The fault to blame: one that no restart heals, else no echo of another's end, else the earliest.

    Where it is not known when it happened, its earliest echo tells.
    """
    ranked = sorted(
        faults,
        key=lambda fault: (
            not fault.policy.terminal,
            fault.reason is not Reasons.NODE_LOST,
            fault.policy.echo,
            fault.rank is None,
            fault.at or float("inf"),
            fault.rank if fault.rank is not None else -1,
        ),
    )
    if not ranked:
        return None
    known = min((fault.at for fault in ranked if fault.at), default=0.0)
    return ranked[0] if ranked[0].at else replace(ranked[0], at=known)


def slot_faults(
    slot: Slot, view: SlotView, incarnation: int, hang_seconds: int, leaving: bool
) -> list[Fault]:
    """The faults of one slot's ranks in this incarnation; `leaving`: its pod was told to go."""
    if view.incarnation != incarnation:
        return []
    away = dict(view.troubles).get("NOT_RESTORED", "")
    found = (rank_fault(rank, slot, view.node, hang_seconds, leaving, away) for rank in view.ranks)
    return [fault for fault in found if fault]
