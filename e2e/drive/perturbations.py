"""Perturbations of the registry on the local cluster. On pods, the code of the node agent injects them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.injector import KINDS
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Order, Record
from convoy_agents.faults.rules import order_refusal
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.spot.availability import PRESETS
from convoy_workloads.spot.trace import SECONDS_PER_HOUR, steady
from e2e.cluster.cluster import Cluster
from e2e.drive.spot_nodes import LocalProvider, following

TICK_SECONDS = 0.25
MAX_SECONDS = 3600.0
"""Longest time of a fault. Its block ends earlier."""
SPOT_MODEL = "v100-16-nodes"
MACHINE = NodeFolders(Path("/sys/fs/cgroup"), Path("/proc"))
"""The machine, whose processes include those of all nodes."""


@dataclass(frozen=True)
class PodTarget:
    """A pod on a node of the local cluster."""

    cluster: Cluster
    node: str
    uid: str
    rank: int = 0
    """Number in the job of the rank that a fault affects."""
    members: tuple[str, ...] = ()
    """Uids of all pods that SlowNode slows; empty for the pod only."""
    volume: str = ""
    """Volume that FullDisk fills; empty for the only one that is bounded."""
    delete: Callable[[], object] | None = None
    """Function that deletes the pod, for KillPod."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the node each time that SpotTrace returns it."""

    @classmethod
    def of(cls, cluster: Cluster, pod: Any, rank: int = 0) -> PodTarget:
        """Return the target for a pod as the Kubernetes client returns it."""
        return cls(cluster, pod.spec.node_name, pod.metadata.uid, rank)


@dataclass
class Achieved:
    """The magnitude of a perturbation, asked and measured."""

    asked: float
    magnitude: float | None = None
    """Measured magnitude; None before the first measurement."""


def inject(kind: PerturbationKind, magnitude: float, target: PodTarget) -> AbstractContextManager[Achieved]:
    """Inject a perturbation while the block runs, and undo it at the block's end.

    The kinds that kill something do so before the block begins. A lost node stays down: `restore` starts it
    again. Raises AssertionError if the target does not allow the perturbation.
    """
    return _INJECTORS.get(kind, _fault)(kind, magnitude, target)


def kill_rank(cluster: Cluster, node: str, pod_uid: str, rank: int) -> None:
    """Send SIGKILL to a rank of a pod."""
    with inject(PerturbationKind.KILL_RANK, 1, PodTarget(cluster, node, pod_uid, rank)):
        pass


@contextmanager
def _fault(kind: PerturbationKind, magnitude: float, target: PodTarget) -> Iterator[Achieved]:
    order = Order(
        f"local-{target.uid}", target.uid, "", (), kind.value, magnitude, MAX_SECONDS, 0, target.volume
    )
    if why := order_refusal(order, ()):
        raise AssertionError(why)
    first = Path(f"/proc/{target.cluster.node(target.node).pid}")
    around = Surroundings(
        MACHINE,
        Path("/var/lib/kubelet"),
        _unsaved,
        root=first / "root",
        mount_table=first / "mountinfo",
    )
    fault = KINDS[kind.value](Record(order), around)
    place = Target(target.uid, target.members or (target.uid,), target.rank, 1)
    achieved, ended = Achieved(magnitude), threading.Event()
    try:
        fault.start(place)
        fault.keep(place)
        while not fault.active:  # Some kinds measure before they begin.
            ended.wait(TICK_SECONDS)
            fault.keep(place)
    except (FaultError, TargetGone) as error:
        fault.undo()
        raise AssertionError(f"{kind} on pod {target.uid}: {error}") from error
    if kind is PerturbationKind.KILL_RANK and not fault.record.achieved:
        raise AssertionError(f"rank {target.rank} of pod {target.uid} does not run")
    keeper = threading.Thread(target=_keep, args=(fault, place, ended), name=f"{kind} {target.uid}")
    keeper.start()
    try:
        yield achieved
    finally:
        ended.set()
        keeper.join()
        fault.undo()
        achieved.magnitude = fault.record.achieved


def _keep(fault: Fault, place: Target, ended: threading.Event) -> None:
    """Keep a fault until it ends, or until its pod is gone."""
    while not ended.wait(TICK_SECONDS):
        try:
            fault.keep(place)
        except (FaultError, TargetGone):
            return


@contextmanager
def _deleted_pod(kind: PerturbationKind, magnitude: float, target: PodTarget) -> Iterator[Achieved]:
    if magnitude != 1 or target.delete is None:
        raise AssertionError("one pod is deleted once: use magnitude 1 and a target with `delete`")
    target.delete()
    yield Achieved(magnitude, 1.0)


@contextmanager
def _lost_node(kind: PerturbationKind, magnitude: float, target: PodTarget) -> Iterator[Achieved]:
    if magnitude != 1:
        raise AssertionError("a target has one node: use magnitude 1")
    node = target.cluster.node(target.node)
    node.kill()
    yield Achieved(magnitude, float(not node.alive))


@contextmanager
def _spot_node(kind: PerturbationKind, magnitude: float, target: PodTarget) -> Iterator[Achieved]:
    """Take the target's node and return it, over and over. The node is back at the end of the block."""
    model = PRESETS[SPOT_MODEL].with_losses(magnitude) if magnitude else None
    hours = MAX_SECONDS / SECONDS_PER_HOUR
    found = model.trace(1, hours=hours) if model is not None else steady(1, MAX_SECONDS)
    first = next((change.at for change in found.changes() if change.appeared), 0.0)
    provider = LocalProvider(target.cluster, target.labels)
    achieved = Achieved(magnitude)
    with following(found.window(first, MAX_SECONDS), [target.node], provider) as account:
        yield achieved
    achieved.magnitude = account.losses_per_node_hour


_INJECTORS: dict[
    PerturbationKind, Callable[[PerturbationKind, float, PodTarget], AbstractContextManager[Achieved]]
] = {
    PerturbationKind.KILL_POD: _deleted_pod,
    PerturbationKind.NODE_LOSS: _lost_node,
    PerturbationKind.SPOT_TRACE: _spot_node,
}


def _unsaved(record: Record) -> None:
    """Keep the record in memory only: the block undoes the fault."""
