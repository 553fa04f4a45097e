"""Tests of the kinds of faults on a fake node, and of the link limit in a real network namespace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.fault_node import UID, FaultNode

from convoy_agents.csi import mounts
from convoy_agents.faults import disk, helper, kill, pod_processes, slow, tenant
from convoy_agents.faults.disk import FullDisk
from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Target
from convoy_agents.faults.kill import KillRank
from convoy_agents.faults.link import LinkLimit
from convoy_agents.faults.record import Order, Record
from convoy_agents.faults.slow import Slow
from convoy_agents.faults.tenant import Tenant
from convoy_crds.perturbations import PerturbationKind as Kind

TARGET = Target(UID, (UID,), first_rank=4, processes=1)


def record(kind: Kind, magnitude: float, seconds: float = 60.0, **more: Any) -> Record:
    return Record(Order("f-1", UID, "job", ("job",), kind.value, magnitude, seconds, **more))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> FaultNode:
    return FaultNode(tmp_path, request.param)


def slowed(node: FaultNode, kind: Kind = Kind.SLOW_RANK, target: Target = TARGET) -> Slow:
    """Return a fault of factor 4, of a pod that used 0.8 processors before it."""
    fault = Slow(record(kind, 4.0), node.around)
    fault.start(target)
    node.now += slow.BASELINE_SECONDS
    node.use("main", 0.8 * slow.BASELINE_SECONDS)
    fault.keep(target)
    return fault


def test_a_slow_rank_gets_its_usual_processor_time_divided_by_the_factor(node: FaultNode) -> None:
    before = node.quota()
    fault = slowed(node)
    assert fault.active
    assert node.quota().split()[0] == "20000", "0.8 processors / 4, in a period of 100 ms"
    assert node.saved[0]["quotas"] == {str(node.folder("main").relative_to(_top(node))): before}
    node.now += 2.0
    node.use("main", 1.6 + 0.5)
    fault.keep(TARGET)
    assert fault.record.achieved == pytest.approx(0.8 / 0.25)
    fault.undo()
    fault.undo()
    assert node.quota() == before


def test_the_undo_of_a_slow_rank_is_saved_before_the_quota_changes(
    node: FaultNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(container: object, cores: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pod_processes.Container, "limit_cores", crash)
    with pytest.raises(KeyboardInterrupt):
        slowed(node)
    assert [*node.saved[-1]] == ["quotas"], "a crash at this moment leaves the record of the old quota"


def test_a_restarted_container_is_slowed_too_and_a_removed_one_needs_no_undo(node: FaultNode) -> None:
    fault = slowed(node)
    shutil.rmtree(node.folder("main"))
    fault.keep(TARGET)
    node.add_container(UID, "again", 1007, "rank-4")
    node.now += 1.0
    fault.keep(TARGET)
    assert node.quota("again").split()[0] == "20000"
    fault.undo()
    assert node.quota("again").split()[0] in ("-1", "max")


def test_a_slow_node_slows_all_pods_of_the_experiment_there(node: FaultNode) -> None:
    node.add_pod("other", 2001)
    target = Target(UID, (UID, "other"), 4, 1)
    fault = slowed(node, Kind.SLOW_NODE, target)
    assert node.quota(uid="other").split()[0] == node.quota().split()[0] == "20000"
    fault.undo()
    assert node.quota(uid="other").split()[0] == node.quota().split()[0] != "20000"


def test_a_neutral_magnitude_changes_nothing(node: FaultNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant, "Helper", None)
    before = node.quota()
    slow_rank = Slow(record(Kind.SLOW_RANK, 1.0), node.around)
    nobody = Tenant(record(Kind.TENANT, 0.0), node.around)
    for fault in (slow_rank, nobody):
        fault.start(TARGET)
    node.now += 4.0
    node.use("main", 0.8 * 4.0)
    for fault in (slow_rank, nobody):
        fault.keep(TARGET)
        assert fault.active
    node.now += 1.0
    node.use("main", 0.8 * 5.0)
    slow_rank.keep(TARGET)
    assert (node.quota(), nobody.record.achieved) == (before, 0.0)
    assert slow_rank.record.achieved == pytest.approx(1.0)


def test_a_lower_limit_of_the_pod_stays(node: FaultNode) -> None:
    container = pod_processes.ranks_container(node.around.node, UID)
    container.limit_cores(0.1)
    fault = slowed(node)
    assert node.quota().split()[0] == "10000"
    fault.undo()
    assert node.quota().split()[0] == "10000"


@pytest.mark.parametrize(
    ("target", "used", "why"),
    [
        (TARGET, 0.01, "uses 0.005 processors, too few"),
        (Target(UID, (UID,), 4, 2), 1.6, "processesPerReplica: 1"),
    ],
)
def test_a_rank_that_cannot_be_slowed_is_named(tmp_path: Path, target: Target, used: float, why: str) -> None:
    node = FaultNode(tmp_path)
    fault = Slow(record(Kind.SLOW_RANK, 2.0), node.around)
    with pytest.raises(FaultError, match=why):
        fault.start(target)
        node.now += slow.BASELINE_SECONDS
        node.use("main", used)
        fault.keep(target)
    assert node.quota() == "max 100000"


def test_a_pod_without_a_group_or_without_ranks_is_refused(tmp_path: Path) -> None:
    node = FaultNode(tmp_path)
    with pytest.raises(TargetGone, match="pod gone has no control group"):
        pod_processes.containers(node.around.node, "gone")
    (node.proc / "1001/comm").write_text("python\n")
    with pytest.raises(FaultError, match="no rank of pod"):
        pod_processes.ranks_container(node.around.node, UID)


def test_a_rank_is_found_by_its_name_or_its_environment_but_not_its_children(tmp_path: Path) -> None:
    node = FaultNode(tmp_path)
    (node.folder("main") / "cgroup.procs").write_text("900\n1001\n")
    for pid, parent in ((900, 1001), (1001, 1)):
        (node.proc / str(pid)).mkdir(exist_ok=True)
        (node.proc / f"{pid}/comm").write_text("rank-4\n")
        (node.proc / f"{pid}/stat").write_text(f"{pid} (rank-4) S {parent} 0\n")
    assert pod_processes.rank_pid(node.around.node, UID, 4) == 1001, "it has forked process 900"
    for pid in (900, 1001):
        (node.proc / f"{pid}/comm").write_text("python3\n")
        (node.proc / f"{pid}/environ").write_bytes(b"HOME=/\0RANK=7\0")
    assert pod_processes.rank_pid(node.around.node, UID, 7) == 1001
    assert pod_processes.rank_pid(node.around.node, UID, 4) is None
    assert pod_processes.ranks_container(node.around.node, UID).path.endswith("cri-main.scope")


def test_an_agent_that_does_not_see_the_node_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FaultNode(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(FaultError, match=r"faultInjection\.enabled"):
        pod_processes.containers(node.around.node, UID)


def test_kills_are_spread_over_the_time_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, killed = FaultNode(tmp_path), []

    def kill_process(view: object, uid: str, pid: int) -> bool:
        killed.append((node.now, pid))
        return True

    monkeypatch.setattr(kill, "kill_process", kill_process)
    fault = KillRank(record(Kind.KILL_RANK, 2.0, seconds=20.0), node.around)
    fault.start(TARGET)
    for node.now in (100.0, 101.0, 109.0, 110.0, 119.0):
        fault.keep(TARGET)
    assert killed == [(100.0, 1001), (110.0, 1001)]
    assert fault.record.achieved == 2.0


def test_a_kill_waits_for_the_rank_and_reaches_no_process_of_another_pod(tmp_path: Path) -> None:
    node = FaultNode(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            assert not pod_processes.kill_process(node.around.node, UID, process.pid)
            assert process.poll() is None
            (node.folder("main") / "cgroup.procs").write_text(f"{process.pid}\n")
            assert pod_processes.kill_process(node.around.node, UID, process.pid)
            assert process.wait() == -signal.SIGKILL
        finally:
            process.kill()
    fault = KillRank(record(Kind.KILL_RANK, 1.0, rank=0), node.around)
    fault.start(TARGET)
    fault.keep(TARGET)
    assert fault.record.achieved == 0.0, "the rank's process does not run"
    with pytest.raises(FaultError, match="rank: the pod has no rank 3"):
        KillRank(record(Kind.KILL_RANK, 1.0, rank=3), node.around).start(TARGET)


def test_a_tenant_asks_for_its_share_of_the_containers_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FaultNode(tmp_path)
    asked: list[tuple[str, ...]] = []
    stopped: list[int] = []

    class FakeHelper:
        pid = 3001

        def __init__(self, program: str, *arguments: str) -> None:
            asked.append(arguments)

        def run_in(self, container: pod_processes.Container, *controllers: str) -> None:
            assert controllers == ("cpu", "cpuacct", "memory")
            file = container.folder() / "cgroup.procs"
            file.write_text(f"{file.read_text()}3001\n3002\n")

        def stop(self) -> None:
            stopped.append(self.pid)

    monkeypatch.setattr(tenant, "Helper", FakeHelper)
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(tenant, "cpu_seconds", lambda proc, pid: 0.5)
    (node.folder("main").parent / "cpu.max").write_text("300000 100000\n")
    children = node.proc / "3001/task/3001/children"
    children.parent.mkdir(parents=True)
    children.write_text("3002 ")
    fault = Tenant(record(Kind.TENANT, 0.5), node.around)
    fault.start(TARGET)
    assert asked == [("0.75", "2")], "1.5 of 3 processors, in two processes"
    node.now += 1.0
    fault.keep(TARGET)
    assert fault.record.achieved == pytest.approx(1 / 3)
    (node.folder("main") / "cgroup.procs").write_text("3001\n3002\n")
    fault.keep(TARGET)
    assert stopped == [3001], "only the tenant kept the container's group in use"


def test_a_helper_that_an_earlier_agent_left_is_killed_by_its_start_time(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        proc = Path("/proc")
        try:
            helper.kill_left(proc, process.pid, "1")
            assert process.poll() is None, "another process has the number"
            helper.kill_left(proc, process.pid, helper.start_time(proc, process.pid))
            assert process.wait() == -signal.SIGKILL
        finally:
            process.kill()


def test_a_tenants_process_computes_until_its_input_ends() -> None:
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", tenant.PROGRAM, "0.5", "2"], stdin=read)
    os.close(read)
    os.write(write, b"\n")
    os.close(write)
    assert process.wait(20) == 0


class Volume:
    """A tmpfs of 8 MiB at the place of a pod's volume."""

    def __init__(self, node: FaultNode, name: str = "cache", size: int = 8 * 2**20) -> None:
        self.path = node.around.kubelet_dir / "pods" / UID / "volumes/kubernetes.io~empty-dir" / name
        self.path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path], check=True)


@pytest.fixture
def v2(tmp_path: Path) -> Any:
    node = FaultNode(tmp_path)
    (node.folder("main", "memory") / "memory.max").write_text("max\n")
    yield node
    for mount in mounts.table():
        if Path(mount.target).is_relative_to(tmp_path):
            mounts.unmount(Path(mount.target))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and namespaces need root")


@needs_root
def test_a_volume_is_filled_to_the_fraction_and_emptied_again(v2: FaultNode) -> None:
    volume = Volume(v2)
    Volume(v2, "convoy-shm")
    (volume.path / "own").write_bytes(b"1" * 2**20)
    fault = FullDisk(record(Kind.FULL_DISK, 0.75), v2.around)
    fault.start(TARGET)
    assert fault.active
    assert fault.record.achieved == pytest.approx(0.75, abs=0.01)
    FullDisk(Record(fault.order, fault.record.undo), v2.around).undo()
    assert [path.name for path in volume.path.iterdir()] == ["own"]
    fault.undo()


@needs_root
def test_a_whole_volume_is_full_for_its_pod(v2: FaultNode) -> None:
    volume = Volume(v2)
    fault = FullDisk(record(Kind.FULL_DISK, 1.0), v2.around)
    fault.start(TARGET)
    assert fault.record.achieved == 1.0
    with pytest.raises(OSError, match="No space left"):
        (volume.path / "own").write_bytes(b"1")
    fault.undo()


@needs_root
def test_only_a_bounded_volume_of_the_pod_is_filled(v2: FaultNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(**more: Any) -> str:
        with pytest.raises(FaultError) as error:
            FullDisk(record(Kind.FULL_DISK, 0.5, **more), v2.around).start(TARGET)
        return str(error.value)

    folder = v2.around.kubelet_dir / "pods" / UID / "volumes/kubernetes.io~empty-dir/disk"
    folder.mkdir(parents=True)
    assert "the pod has none" in refusal(), "a folder on the node's disk does not count"
    first, second = Volume(v2, "one"), Volume(v2, "two")
    assert "the pod has one, two" in refusal()
    assert "the pod has none" in refusal(volume="disk")
    (v2.folder("main", "memory") / "memory.max").write_text(f"{64 * 2**20}\n")
    (v2.folder("main", "memory") / "memory.current").write_text(f"{40 * 2**20}\n")
    assert "memory limit leaves 24 MiB" in refusal(volume="one")
    monkeypatch.setattr(disk, "MAX_BYTES", 4 * 2**20)
    assert "more than 4: give it a sizeLimit" in refusal(volume="two")
    assert not [*first.path.iterdir(), *second.path.iterdir()]


class Namespace:
    """A network namespace with an interface, as a pod's sandbox has. A thread holds it."""

    def __init__(self, node: FaultNode, interface: str = "eth0") -> None:
        self._held, self._end = threading.Event(), threading.Event()
        self._interface, self.error = interface, ""
        self._thread = threading.Thread(target=self._hold, args=(node,))
        self._thread.start()
        self._held.wait()
        if self.error:
            pytest.skip(self.error)

    def _hold(self, node: FaultNode) -> None:
        libc = pod_processes_libc()
        try:
            if libc.unshare(0x40000000):
                self.error = "network namespaces are not allowed here"
                return
            added = subprocess.run(
                ["ip", "link", "add", self._interface, "type", "veth", "peer", "name", "far"],
                check=False,
                capture_output=True,
            )
            if added.returncode:
                self.error = "no interface can be created here"
                return
            folder = node.proc / "1001/ns"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "net").unlink(missing_ok=True)
            (folder / "net").symlink_to(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")
        finally:
            self._held.set()
        self._end.wait()

    def shown(self) -> str:
        """Return the queue disciplines as tc(8) shows them."""
        target = f"--net=/proc/{os.getpid()}/task/{self._thread.native_id}/ns/net"
        return subprocess.run(
            ["nsenter", target, "tc", "qdisc", "show", "dev", self._interface],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def pod_processes_libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def namespace(tmp_path: Path) -> Any:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("a network namespace needs root, ip and tc")
    node = FaultNode(tmp_path)
    found = Namespace(node)
    yield node, found
    found.close()


def test_a_link_is_limited_in_the_pods_namespace_and_freed_again(
    namespace: tuple[FaultNode, Namespace],
) -> None:
    node, space = namespace
    fault = LinkLimit(record(Kind.LINK_LIMIT, 20.0), node.around)
    fault.start(TARGET)
    assert "tbf c0f0: root" in space.shown()
    assert "rate 20Mbit" in space.shown()
    fault.keep(TARGET)
    assert fault.record.achieved is None, "nothing was sent, so no rate was reached"
    LinkLimit(Record(fault.order, fault.record.undo), node.around).undo()
    assert "tbf" not in space.shown()
    fault.undo()
    fault.keep(TARGET)
    assert "tbf c0f0: root" in space.shown(), "a limit that disappeared is set again"
    fault.undo()


def test_a_high_rate_needs_64_bits_and_another_limit_is_kept(namespace: tuple[FaultNode, Namespace]) -> None:
    node, space = namespace
    fault = LinkLimit(record(Kind.LINK_LIMIT, 100_000.0), node.around)
    fault.start(TARGET)
    assert "rate 100Gbit" in space.shown()
    fault.undo()
    other = f"--net=/proc/{os.getpid()}/task/{space._thread.native_id}/ns/net"
    rate = ["rate", "1mbit", "burst", "32kb", "latency", "50ms"]
    command = ["nsenter", other, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf"]
    subprocess.run([*command, *rate], check=True)
    with pytest.raises(FaultError, match="already has the queue discipline tbf"):
        LinkLimit(record(Kind.LINK_LIMIT, 1.0), node.around).start(TARGET)
    fault.undo()
    assert "tbf 1: root" in space.shown()


def test_the_nodes_own_network_is_never_limited(tmp_path: Path) -> None:
    node = FaultNode(tmp_path)
    for pid in ("1", "self", "1001"):
        (node.proc / pid / "ns").mkdir(parents=True)
        (node.proc / pid / "ns/net").symlink_to("/proc/self/ns/net")
    with pytest.raises(FaultError, match="hostNetwork"):
        LinkLimit(record(Kind.LINK_LIMIT, 1.0), node.around).start(TARGET)


def _top(node: FaultNode) -> Path:
    return node.cgroups / "cpu" if node.version == 1 else node.cgroups
