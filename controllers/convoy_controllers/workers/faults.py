"""Faults of an incarnation, per rank, pod and node. `blame.py` picks the root cause.

Ranks use the exit codes of the engine contract: 10 parameters refused, 20 data or verification failure, 69
no state to resume from while the store is unavailable, 75 preempted with state saved, 76 lost a peer,
126/127 command not executable/not found.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.views import NodeView, PodView, PodWarning, RankView, SlotView
from convoy_controllers.workers.pod_ends import PodEnd, failed, idle_end, pod_end
from convoy_controllers.workers.policy import Policy, policy
from convoy_controllers.workers.stderr import gist, lost_peer, main_thread, timed_out, waits_for_others
from convoy_crds.layout import Slot
from convoy_crds.nodehealth import State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import LABEL_NODE_HEALTH

BAD_PARAMS, BAD_DATA, STORE_AWAY, PREEMPTED, PEER_LOST = 10, 20, 69, 75, 76
SIGKILL, SIGTERM = 9, 15
ASKED_TO_END = 128 + SIGTERM
"""Exit code of a rank that SIGTERM ended. Kubelets send SIGTERM when a pod is deleted."""
_CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
"""Signals that a program causes itself, by their Linux numbers."""

_BY_CODE = {
    BAD_PARAMS: Reasons.BAD_PARAMS_EXIT,
    BAD_DATA: Reasons.DATA_ERROR,
    STORE_AWAY: Reasons.STORE_UNAVAILABLE,
    PREEMPTED: Reasons.PREEMPTED,
    PEER_LOST: Reasons.PEER_LOST,
}
_EVICTIONS = {
    "EvictionByEvictionAPI": "a client evicted it through the eviction API",
    "DeletionByTaintManager": "it does not tolerate a taint of its node",
    "TerminationByKubelet": "its node is short of a resource or shuts down",
    "DeletionByPodGC": "its node was deleted",
}
"""Explanations for the reasons of a pod's DisruptionTarget condition (Kubernetes, KEP-3329). The reason
that the scheduler sets is missing, because it is a fault of its own kind.
"""
_MAY_BE_ECHOES = (Reasons.RANK_FAILED, Reasons.RANK_CRASHED, Reasons.RANK_NOT_ENDING)
"""Reasons for the end of a rank that a lost peer may also cause: an uncaught error, an abort by the c10d
watchdog or by an abandoned C++ thread, an interpreter that does not exit after its error.
"""
HANGS = (Reasons.RANK_HUNG, Reasons.RANK_NOT_ENDING)


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason why an incarnation cannot go on."""

    reason: Reason
    message: str
    rank: int | None = None
    node: str | None = None
    pod: str | None = None
    exit_code: int | None = None
    step: int | None = None
    """Last step of the rank at fault; None if not known."""
    at: float = 0.0
    """Unix seconds at which the fault happened; 0 if not known."""
    ended: float = 0.0
    """Unix seconds at which the process ended or the deletion of its pod was requested; 0 if not known. For
    a hang this is later than `at`, because a hang starts at the last step.
    """
    role: str = ""
    """Role of the rank. Steps are compared only within one role."""
    stderr_end: str = ""
    """The most useful part of the end of the rank's stderr."""
    consequence: bool = False
    """True if another fault explains this fault, although the reason alone does not show it. The evidence
    is the rank's stderr, or another fault at the same time.
    """
    waits_for_others: bool | None = None
    """True if the main thread of a hung rank was in a collective; None if not known."""
    timed_out: bool = False
    """True if the rank's stderr shows that a peer did not reply in time. The peer may hang."""
    unclear: bool = False
    """True if any one of several ranks may be at fault. No node is then blamed."""
    awaits: bool = False
    """True while other ranks of the incarnation still run. When they end, their reports may explain this
    fault.
    """
    free: bool = False
    """True if this fault does not count against `recovery.maxRestarts`, although other faults with the same
    reason do.
    """

    @property
    def policy(self) -> Policy:
        """Return the restart policy for this kind of fault."""
        return policy(self.reason)

    @property
    def counted(self) -> bool:
        """Return True if the fault counts against `recovery.maxRestarts`."""
        return self.policy.counted and not self.free

    @property
    def echo(self) -> bool:
        """Return True if the fault is most likely the consequence of another rank's end or hang."""
        return self.policy.echo or self.consequence

    @property
    def hang(self) -> bool:
        """Return True if the launcher's watchdog ended the rank."""
        return self.reason in HANGS

    @property
    def blames_node(self) -> bool:
        """Return True if the fault's node is recorded as an offender."""
        return self.policy.blames_node and not (self.echo or self.unclear)


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A rank's exit with code 0 while other ranks of its role went on."""

    rank: int
    node: str
    pod: str
    role: str
    step: int | None = None
    """Last step of the rank; None if the rank made no step, or if the step is not known."""
    total_steps: int | None = None
    """Number of steps that the ranks of the role must make (the maximum, if they differ); None if not
    known.
    """
    ended: float = 0.0
    """Unix seconds at which the rank ended; 0 if not known."""

    @property
    def certain(self) -> bool:
        """Return True if the rank is known to have had steps left."""
        return self.total_steps is not None and (self.step or 0) < self.total_steps


def made_all_steps(rank: RankView) -> bool:
    """Return True if a rank has made all its steps. If the number of steps is not known, return True as
    soon as the rank's main program has returned.
    """
    if rank.total_steps:
        return (rank.step or 0) >= rank.total_steps
    return bool(rank.finished)


def _waits(rank: RankView) -> bool | None:
    """Return True if a hung rank waits for other ranks, False if it does not, None if not known.

    The rank's stack decides. If the stack does not show it, a rank whose main program has returned waits
    for no other rank.
    """
    found = waits_for_others(rank.stderr)
    return False if found is None and rank.finished else found


def _rank_reason(rank: RankView) -> Reason:
    if rank.command_not_found:
        return Reasons.COMMAND_NOT_FOUND
    if rank.oom:
        return Reasons.RANK_OOM
    if rank.hung:
        return Reasons.RANK_NOT_ENDING if made_all_steps(rank) else Reasons.RANK_HUNG
    if rank.signal:
        return Reasons.RANK_CRASHED if rank.signal in _CRASHES else Reasons.RANK_KILLED
    return _BY_CODE.get(rank.exit_code, Reasons.RANK_FAILED)


def _stderr_sentence(rank: RankView, last: str, slot: Slot) -> str:
    """Return the last sentence of a message: the place in the code where a rank hangs, otherwise the end of
    its stderr.
    """
    if place := main_thread(rank.stderr) if rank.hung else "":
        return f"Its main thread is at {place}."
    if last:
        return f"Its stderr ends with: {last}"
    return f"It wrote nothing to stderr: read kubectl logs {slot.pod}."


def _place(rank: RankView, last: str) -> str:
    place = main_thread(rank.stderr)
    return f"its main thread is at {place}" if place else f"its stderr ends with: {last or 'nothing'}"


def rank_fault(
    rank: RankView, slot: Slot, node: str, hang_seconds: int, leaving: bool, store_away: str = ""
) -> Fault | None:
    """Return the fault of one rank. Return None while the rank runs, if it exited with code 0, or if the
    deletion of its pod ended it.

    `leaving` is True if the pod was asked to stop. `store_away` is the agent's explanation if the restore
    waits for an unavailable store.

    The exit codes 75 (preempted) and 69 (store unavailable) need proof, because a fault with proof does not
    count against `recovery.maxRestarts`. Otherwise a program that always exits with such a code would
    restart forever. The proof of code 75 is that the pod was asked to stop. The proof of code 69 is that
    the agent reports the unavailable store.
    """
    if rank.state != "EXITED" or (rank.exit_code == 0 and rank.signal == 0):
        return None
    if leaving and rank.exit_code in (ASKED_TO_END, 128 + SIGKILL) and not (rank.oom or rank.hung):
        return None  # `pod_fault` reports the deletion of the pod instead.
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
        stderr=_stderr_sentence(rank, last, slot),
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
        # A hung rank made no progress after its last step, so the fault is dated to that step. The rank's
        # process ended only later, when the watchdog killed it.
        at=(rank.time or rank.ended) if rank.hung else rank.ended,
        ended=rank.ended,
        role=slot.role,
        stderr_end=last,
        consequence=reason in _MAY_BE_ECHOES and lost_peer(rank.stderr),
        waits_for_others=_waits(rank) if rank.hung else None,
        timed_out=timed_out(rank.stderr),
        free=leaving and reason is Reasons.PREEMPTED,
    )


def pod_fault(pod: PodView, node: NodeView | None, warning: PodWarning | None = None) -> Fault | None:
    """Return the fault of a pod that failed or is being deleted; None for any other pod. `warning` is the
    pod's newest Event.
    """
    if pod.disruption == "PreemptionByScheduler":
        return _of_pod(pod, Reasons.POD_PREEMPTED)
    if pod.disruption == "EvictionByEvictionAPI" and node is not None:
        if node.cordoned:
            return _of_pod(pod, Reasons.NODE_DRAINED)
        if node.labels.get(LABEL_NODE_HEALTH) == State.DRAINING:
            return _of_pod(pod, Reasons.STRAGGLER_SWAPPED)
        if node.labels.get(LABEL_NODE_HEALTH) == State.SWEEPING:
            return _of_pod(pod, Reasons.SUSPECT_SWAPPED)
    if (failed(pod) or pod.deleting) and pod.disruption:
        explained = pod.kubelet_message if pod.disruption == "TerminationByKubelet" else ""
        return _of_pod(pod, Reasons.POD_EVICTED, explained or _EVICTIONS.get(pod.disruption, pod.disruption))
    if found := pod_end(pod, warning):
        return _ended(pod, found)
    if pod.deleting:
        return _of_pod(pod, Reasons.POD_DELETED)
    return None


def idle_fault(pod: PodView) -> Fault | None:
    """Return the fault of a pod that exited with code 0 before its incarnation formed; None for any other
    pod.
    """
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
        # While its agent is away, a launcher exits with the exit code of its ranks: 76 if they lost a peer,
        # 75 if they saved their state. The launcher's exit code therefore has the same meaning here as a
        # rank's.
        consequence=found.reason is Reasons.CONTAINER_FAILED and found.exit_code == PEER_LOST,
        free=lost and found.exit_code == PREEMPTED,
    )


def _of_pod(pod: PodView, reason: Reason, why: str = "") -> Fault:
    message = reason.format(pod=pod.name, node=pod.node, why=why)
    return Fault(
        reason, message, node=pod.node, pod=pod.name, exit_code=pod.exit_code, ended=pod.leaving_since
    )


def missing_fault(slot: Slot) -> Fault:
    """Return the fault of a slot whose pod disappeared or was replaced."""
    return Fault(Reasons.POD_DELETED, Reasons.POD_DELETED.format(pod=slot.pod, node="unknown"), pod=slot.pod)


def node_fault(pod: PodView, node: NodeView, why: str) -> Fault:
    """Return the fault of a pod on a lost node. Its time is the time at which the node's agent last sent
    something.
    """
    message = Reasons.NODE_LOST.format(node=node.name, pod=pod.name, why=why)
    return Fault(Reasons.NODE_LOST, message, node=node.name, pod=pod.name, at=node.silent_since)


def slot_faults(
    slot: Slot, view: SlotView, incarnation: int, hang_seconds: int, leaving: bool
) -> list[Fault]:
    """Return the faults of one slot's ranks in this incarnation. `leaving` is True if the pod was asked to
    stop.
    """
    if view.incarnation != incarnation:
        return []
    away = dict(view.troubles).get("NOT_RESTORED", "")
    found = (rank_fault(rank, slot, view.node, hang_seconds, leaving, away) for rank in view.ranks)
    return [fault for fault in found if fault]
