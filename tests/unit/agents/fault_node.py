"""A fake node for faults: control groups and processes as files, and a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from convoy_agents.faults.fault import Surroundings
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Record

UID = "1a2b-3c4d"


@dataclass
class FaultNode:
    """A node with the pod UID: a sandbox and a container `main` whose process 1001 is rank 4 of the job."""

    root: Path
    version: int = 2
    now: float = 100.0
    saved: list[dict[str, object]] = field(default_factory=list)
    """The undo data of each save, in order."""

    def __post_init__(self) -> None:
        self.cgroups, self.proc = self.root / "sys/fs/cgroup", self.root / "proc"
        self.around = Surroundings(
            NodeFolders.at(self.root, self.proc), self.root / "kubelet", self._save, lambda: self.now
        )
        if self.version == 2:
            self.cgroups.mkdir(parents=True)
            (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        self.add_pod(UID, 1001)

    def add_pod(self, uid: str, pid: int, rank: int = 4) -> None:
        """Add a pod with a rank."""
        self.add_container(uid, "sandbox", pid + 1, "pause")
        self.add_container(uid, "main", pid, f"rank-{rank}")

    def add_container(self, uid: str, name: str, pid: int, comm: str) -> None:
        """Add a container with one process."""
        for controller in ("cpu", "cpuacct", "memory"):
            folder = self.folder(name, controller, uid)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.procs").write_text(f"{pid}\n")
        cpu = self.folder(name, "cpu", uid)
        for folder in (cpu.parent, cpu):
            self._unlimited(folder)
        self.use(name, 0.0, uid)
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "comm").write_text(f"{comm}\n")

    def _unlimited(self, cpu: Path) -> None:
        if self.version == 2:
            (cpu / "cpu.max").write_text("max 100000\n")
        else:
            (cpu / "cpu.cfs_quota_us").write_text("-1\n")
            (cpu / "cpu.cfs_period_us").write_text("100000\n")

    def folder(self, name: str, controller: str = "cpu", uid: str = UID) -> Path:
        """Return the control group of a container."""
        if self.version == 1:
            return self.cgroups / controller / "node/kubepods/burstable" / f"pod{uid}" / name
        pod = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        return self.cgroups / "kubepods.slice/kubepods-burstable.slice" / pod / f"cri-{name}.scope"

    def use(self, name: str, seconds: float, uid: str = UID) -> None:
        """Set the processor time that a container has used."""
        if self.version == 2:
            (self.folder(name, "cpu", uid) / "cpu.stat").write_text(f"usage_usec {int(seconds * 1e6)}\n")
        else:
            (self.folder(name, "cpuacct", uid) / "cpuacct.usage").write_text(f"{int(seconds * 1e9)}\n")

    def quota(self, name: str = "main", uid: str = UID) -> str:
        """Return the processor quota of a container."""
        file = "cpu.max" if self.version == 2 else "cpu.cfs_quota_us"
        return (self.folder(name, "cpu", uid) / file).read_text().strip()

    def _save(self, record: Record) -> None:
        self.saved.append({name: dict(one) for name, one in record.undo.items() if isinstance(one, dict)})
