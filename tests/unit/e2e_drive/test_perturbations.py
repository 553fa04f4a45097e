"""Tests of perturbations on the local cluster, with a fake node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from e2e.drive import perturbations
from e2e.drive.perturbations import PodTarget, inject
from tests.unit.agents.fault_node import UID, FaultNode

from convoy_agents.faults.injector import KINDS
from convoy_crds.perturbations import PERTURBATIONS, Backend
from convoy_crds.perturbations import PerturbationKind as Kind


class FakeNode:
    pid = os.getpid()
    alive = True

    def kill(self) -> None:
        self.alive = False

    def reboot(self) -> None:
        self.alive = True


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultNode:
    found = FaultNode(tmp_path)
    monkeypatch.setattr(perturbations, "MACHINE", found.around.node)
    return found


def target(rank: int = 4, **more: Any) -> PodTarget:
    machine = FakeNode()
    cluster: Any = SimpleNamespace(node=lambda name: machine)
    return PodTarget(cluster, "n0", UID, rank, **more)


def test_the_local_cluster_injects_each_kind_of_its_registry() -> None:
    wanted = {one.kind for one in PERTURBATIONS if Backend.HARNESS in one.backends}
    assert wanted == {Kind(kind) for kind in KINDS} | set(perturbations._INJECTORS)


def test_a_rank_is_dead_when_the_block_begins(node: FaultNode) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        node.add_container(UID, "main", process.pid, "rank-4")
        try:
            with inject(Kind.KILL_RANK, 1, target()) as achieved:
                assert process.wait(20) == -signal.SIGKILL
        finally:
            process.kill()
    assert (achieved.asked, achieved.magnitude) == (1, 1.0)


@pytest.mark.parametrize(
    ("kind", "magnitude", "why"),
    [
        (Kind.KILL_RANK, 1, "rank 9 of pod 1a2b-3c4d does not run"),
        (Kind.KILL_RANK, 0.5, "0.5 is not a whole number of kills"),
        (Kind.OBSERVATION_LAG, 1, "never injects ObservationLag"),
        (Kind.FULL_DISK, 1, "the pod has none"),
        (Kind.KILL_POD, 1, "a target with `delete`"),
        (Kind.NODE_LOSS, 2, "use magnitude 1"),
    ],
)
def test_a_target_that_does_not_fit_is_said(node: FaultNode, kind: Kind, magnitude: float, why: str) -> None:
    with pytest.raises(AssertionError, match=why), inject(kind, magnitude, target(rank=9)):
        raise RuntimeError("the block must not run")


def test_pods_and_nodes_are_gone_when_the_block_begins() -> None:
    deleted: list[int] = []
    with inject(Kind.KILL_POD, 1, target(delete=lambda: deleted.append(1))) as achieved:
        assert (deleted, achieved.magnitude) == ([1], 1.0)
    where = target()
    with inject(Kind.NODE_LOSS, 1, where) as achieved:
        assert (where.cluster.node("n0").alive, achieved.magnitude) == (False, 1.0)


def test_a_spot_node_is_back_at_the_end_of_the_block() -> None:
    where = target(labels={"capacity": "spot"})
    where.cluster.node("n0").kill()
    calls: list[tuple[str, ...]] = []

    def kubectl(*words: str) -> str:
        calls.append(words)
        return "node/n0"

    where.cluster.kubectl = kubectl  # type: ignore[method-assign,assignment]
    with inject(Kind.SPOT_TRACE, 0, where) as achieved:
        assert achieved.magnitude is None
    assert where.cluster.node("n0").alive
    assert calls[-1] == ("label", "node", "n0", "capacity=spot", "--overwrite")
    assert (achieved.asked, achieved.magnitude) == (0, 0.0)
