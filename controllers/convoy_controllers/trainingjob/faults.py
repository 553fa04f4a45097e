"""Faults of an incarnation: those of each rank, pod and node. `blame.py` finds the cause.

Exit codes of a rank are those of the engine contract: 10 parameters refused, 20 data or verification
failure, 69 nothing to go on from while the store is away, 75 preempted with its state saved, 76 lost a peer,
126/127 command not executable/not found.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.trainingjob.pod_ends import PodEnd, failed, idle_end, pod_end
from convoy_controllers.trainingjob.policy import Policy, policy
from convoy_controllers.trainingjob.stderr import gist, lost_peer, main_thread, timed_out, waits_for_others
from convoy_controllers.views import NodeView, PodView, PodWarning, RankView, SlotView
from convoy_crds.layout import Slot
from convoy_crds.nodehealth import State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import LABEL_NODE_HEALTH

BAD_PARAMS, BAD_DATA, STORE_AWAY, PREEMPTED, PEER_LOST = 10, 20, 69, 75, 76
SIGKILL, SIGTERM = 9, 15
ASKED_TO_END = 128 + SIGTERM
"""Exit code of a rank that ended by SIGTERM, which is the kubelet's when a pod is deleted."""
_CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
"""Signals that a program brings upon itself, by their Linux numbers."""

_BY_CODE = {
    BAD_PARAMS: Reasons.BAD_PARAMS_EXIT,
    BAD_DATA: Reasons.DATA_ERROR,
    STORE_AWAY: Reasons.STORE_UNAVAILABLE,
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
_MAY_BE_ECHOES = (Reasons.RANK_FAILED, Reasons.RANK_CRASHED, Reasons.RANK_NOT_ENDING)
"""Kinds of ends that a program also makes of a lost peer: an uncaught error, the abort of c10d's watchdog or
of a C++ thread that was left, an interpreter that does not end after its error."""
HANGS = (Reasons.RANK_HUNG, Reasons.RANK_NOT_ENDING)


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
    ended: float = 0.0
    """Unix seconds at which the process ended, or its pod was told to go; 0 when that is not known. It is
    later than `at` for a hang, which lasts since the last step."""
    role: str = ""
    """The rank's, whose steps compare with those of its like alone."""
    last_words: str = ""
    """The gist of the rank's stderr."""
    consequence: bool = False
    """Another fault explains it, by its last words or by what happened beside it, though not by its kind."""
    waits_for_others: bool | None = None
    """True if the main thread of a hung rank was in a collective; None where nothing tells."""
    timed_out: bool = False
    """Its last words say that a peer did not reply in time: that peer may hang."""
    unclear: bool = False
    """Nothing tells which of several ranks is at fault, so no node is blamed."""
    awaits: bool = False
    """Ranks of the incarnation still run, and their end may explain it."""
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

    @property
    def echo(self) -> bool:
        """Return whether it is most likely the consequence of another rank's end, or hang."""
        return self.policy.echo or self.consequence

    @property
    def hang(self) -> bool:
        """Return whether the launcher's watchdog ended the rank."""
        return self.reason in HANGS

    @property
    def blames_node(self) -> bool:
        """Return whether its node becomes an offender."""
        return self.policy.blames_node and not (self.echo or self.unclear)


def through(rank: RankView) -> bool:
    """Return whether a rank has made all its steps; without a total the end of its main program shows it."""
    if rank.total_steps:
        return (rank.step or 0) >= rank.total_steps
    return bool(rank.finished)


def _waits(rank: RankView) -> bool | None:
    """Return whether a hung rank waits for others; None where nothing tells.

    A rank whose main program is over waits for nobody, unless a stack shows that it does.
    """
    found = waits_for_others(rank.stderr)
    return False if found is None and rank.finished else found


def _rank_reason(rank: RankView) -> Reason:
    if rank.command_not_found:
        return Reasons.COMMAND_NOT_FOUND
    if rank.oom:
        return Reasons.RANK_OOM
    if rank.hung:
        return Reasons.RANK_NOT_ENDING if through(rank) else Reasons.RANK_HUNG
    if rank.signal:
        return Reasons.RANK_CRASHED if rank.signal in _CRASHES else Reasons.RANK_KILLED
    return _BY_CODE.get(rank.exit_code, Reasons.RANK_FAILED)


def _last_words(rank: RankView, last: str) -> str:
    """Return the quotation at the end of a message: a hung rank's place in its code, else its last words."""
    if place := main_thread(rank.stderr) if rank.hung else "":
        return f"Its main thread is at {place}."
    return f"Its last words: {last}" if last else "It wrote nothing to stderr."


def _place(rank: RankView, last: str) -> str:
    place = main_thread(rank.stderr)
    return f"its main thread is at {place}" if place else f"its last words: {last or 'none'}"


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
    if reason is Reasons.STORE_UNAVAILABLE and not store_away:
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
        step=f" {rank.step}" if rank.step else "",
        role=slot.role,
        why=store_away or last or "not found",
        stderr=_last_words(rank, last),
        place=_place(rank, last),
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
        ended=rank.ended,
        role=slot.role,
        last_words=last,
        consequence=reason in _MAY_BE_ECHOES and lost_peer(rank.stderr),
        waits_for_others=_waits(rank) if rank.hung else None,
        timed_out=timed_out(rank.stderr),
        free=leaving and reason is Reasons.PREEMPTED,
    )


def pod_fault(pod: PodView, node: NodeView | None, warning: PodWarning | None = None) -> Fault | None:
    """The fault of a pod that failed or is going away, or None. `warning`: the newest Event of it."""
    if pod.disruption == "PreemptionByScheduler":
        return _of_pod(pod, Reasons.POD_PREEMPTED)
    if pod.disruption == "EvictionByEvictionAPI" and node is not None:
        if node.cordoned:
            return _of_pod(pod, Reasons.NODE_DRAINED)
        if node.labels.get(LABEL_NODE_HEALTH) == State.DRAINING:
            return _of_pod(pod, Reasons.STRAGGLER_SWAPPED)
    if (failed(pod) or pod.deleting) and pod.disruption:
        told = pod.kubelet_message if pod.disruption == "TerminationByKubelet" else ""
        return _of_pod(pod, Reasons.POD_EVICTED, told or _EVICTIONS.get(pod.disruption, pod.disruption))
    if found := pod_end(pod, warning):
        return _ended(pod, found)
    if pod.deleting:
        return _of_pod(pod, Reasons.POD_DELETED)
    return None


def idle_fault(pod: PodView) -> Fault | None:
    """The fault of a pod that ended well before its incarnation formed, or None."""
    found = idle_end(pod)
    return _ended(pod, found) if found else None


def _ended(pod: PodView, found: PodEnd) -> Fault:
    lost = found.reason is Reasons.POD_LOST
    return Fault(
        found.reason,
        found.message,
        node=pod.node,
        pod=pod.name,
        exit_code=found.exit_code,
        ended=pod.leaving_since,
        # The launcher ends with the code of its ranks where its agent is away: a peer was lost, or
        # their state was saved.
        consequence=found.reason is Reasons.CONTAINER_FAILED and found.exit_code == PEER_LOST,
        free=lost and found.exit_code == PREEMPTED,
    )


def _of_pod(pod: PodView, reason: Reason, why: str = "") -> Fault:
    message = reason.format(pod=pod.name, node=pod.node, why=why)
    return Fault(
        reason, message, node=pod.node, pod=pod.name, exit_code=pod.exit_code, ended=pod.leaving_since
    )


def missing_fault(slot: Slot) -> Fault:
    """The fault of a slot whose pod has vanished or was replaced."""
    return Fault(Reasons.POD_DELETED, Reasons.POD_DELETED.format(pod=slot.pod, node="unknown"), pod=slot.pod)


def node_fault(pod: PodView, node: NodeView, why: str) -> Fault:
    """The fault of a pod whose node is lost; it happened when its agent was last heard of."""
    message = Reasons.NODE_LOST.format(node=node.name, pod=pod.name, why=why)
    return Fault(Reasons.NODE_LOST, message, node=node.name, pod=pod.name, at=node.silent_since)


def slot_faults(
    slot: Slot, view: SlotView, incarnation: int, hang_seconds: int, leaving: bool
) -> list[Fault]:
    """The faults of one slot's ranks in this incarnation; `leaving`: its pod was told to go."""
    if view.incarnation != incarnation:
        return []
    away = dict(view.troubles).get("NOT_RESTORED", "")
    found = (rank_fault(rank, slot, view.node, hang_seconds, leaving, away) for rank in view.ranks)
    return [fault for fault in found if fault]
