"""Control groups of a cluster, on machines with cgroup v1, v2 or both (hybrid)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.run import wait_for

PERIOD_US = 100_000
UNLIMITED = {1: "-1", 2: "max"}
# Controllers that the kubelet needs. Other controllers (rdma, misc) are enabled if they exist.
_NEEDED = ("cpu", "cpuset", "memory", "pids")


@dataclass(frozen=True)
class Cgroups:
    """The machine's cgroup hierarchies: their mount points, and the version (1 or 2) that manages
    resources.
    """

    version: int
    mounts: tuple[Path, ...]
    cpu: Path

    @classmethod
    def detect(cls, mounts: str | None = None) -> Cgroups:
        """Return the hierarchies listed in `mounts`, a text like /proc/mounts (default: this machine's
        /proc/mounts).
        """
        v1: list[tuple[Path, list[str]]] = []
        v2: list[Path] = []
        for line in (mounts if mounts is not None else Path("/proc/mounts").read_text()).splitlines():
            words = line.split()
            if words[2] == "cgroup":
                v1.append((Path(words[1]), words[3].split(",")))
            elif words[2] == "cgroup2":
                v2.append(Path(words[1]))
        # A controller that is mounted as v1 is not available to v2, so look for the cpu controller in v1
        # first.
        for where, options in v1:
            if "cpu" in options:
                return cls(1, (*(path for path, _ in v1), *v2), where)
        if v2:
            return cls(2, (v2[0],), v2[0])
        raise ClusterError("no cgroup hierarchy with the cpu controller is mounted on this machine")

    def create(self, name: str) -> None:
        """Create the group `name`, such as `convoy-x/node-1`, in every hierarchy, ready for use by a
        kubelet.
        """
        for mount in self.mounts:
            if self.version == 2:
                _enable_controllers(mount)
            path = mount
            for part in name.split("/"):
                path = path / part
                path.mkdir(exist_ok=True)
                if self.version == 2:
                    _enable_controllers(path)
                # A v1 cpuset starts without processors, and no process may enter it, so copy the parent's
                # processors.
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if (path / file).exists() and not (path / file).read_text().strip() and self.version == 1:
                        (path / file).write_text((path.parent / file).read_text())

    def remove(self, name: str, *, deadline: float = 15.0) -> None:
        """Remove the group and all groups below it. Wait until the kernel has removed the killed processes
        in them.
        """
        for mount in self.mounts:
            top = mount / name

            def all_removed(top: Path = top) -> bool:
                for group in _deepest_first(top):
                    try:
                        group.rmdir()
                    except FileNotFoundError:
                        continue
                    except OSError:
                        return False
                return True

            wait_for(
                all_removed, deadline=deadline, what=f"removal of cgroup {top}", why=partial(_members, top)
            )

    def exists(self, name: str) -> bool:
        """Return True if any hierarchy has the group."""
        return any((mount / name).exists() for mount in self.mounts)

    def pod(self, node: str, uid: str) -> Path:
        """Return a pod's group in the cpu hierarchy. Raises ClusterError if the pod is not on the node."""
        top = self.cpu / node
        for parent in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
            path = top / parent / f"pod{uid}"
            if path.exists():
                return path
        raise ClusterError(f"no pod with uid {uid} has a cgroup below {top}: is it running on this node?")

    def limit_reads(self, node: str, uid: str, device: str, bytes_per_second: int) -> None:
        """Limit a pod's reads from a disk (`major:minor`) to `bytes_per_second`; 0 removes the limit."""
        if self.version == 2:
            (self.pod(node, uid) / "io.max").write_text(f"{device} rbps={bytes_per_second or UNLIMITED[2]}")
            return
        # v1 limits each group separately, so the groups of the pod's containers need the limit.
        file = "blkio.throttle.read_bps_device"
        for group in _deepest_first(self._group_with_file(self.pod(node, uid), file)):
            (group / file).write_text(f"{device} {bytes_per_second}")

    def enter(self, node: str, uid: str, pid: int, file: str = "cpu.shares") -> None:
        """Move a process into the cgroup of one container of a pod, so that the process uses the
        container's resources.

        The chosen container is the one with the most processes. On cgroup v1, the hierarchy is the one
        whose groups have the file `file`.
        """
        pod = self.pod(node, uid)
        groups = [*_deepest_first(pod if self.version == 2 else self._group_with_file(pod, file))]
        leaves = [group for group in groups if not any(other.parent == group for other in groups)]
        busiest = max(leaves, key=lambda group: len((group / "cgroup.procs").read_text().split()))
        (busiest / "cgroup.procs").write_text(str(pid))

    def _group_with_file(self, group: Path, file: str) -> Path:
        """Return the counterpart of `group` in the v1 hierarchy whose groups have this file."""
        path = group.relative_to(self.cpu)
        for mount in self.mounts:
            if (mount / path / file).exists():
                return mount / path
        raise ClusterError(f"no control group hierarchy on this machine has {file} for {path}")

    def throttle(self, pod: Path, cores: float) -> dict[str, str]:
        """Limit a pod to `cores` processors (0.25 is a quarter of one). Return the previous quotas by path.

        In cgroup v1, the quota of a child must not exceed that of its parent. So the quotas of the children
        are lowered first.
        """
        quota = max(1000, int(cores * PERIOD_US))
        before: dict[str, str] = {}
        for group in _deepest_first(pod):
            old = self._read(group)
            if group != pod and (old < 0 or old <= quota):
                continue
            before[str(group)] = str(old)
            self._write(group, quota)
        return before

    def restore(self, before: dict[str, str]) -> None:
        """Restore the previous quota of each group. Skip groups that no longer exist."""
        for path, quota in reversed(before.items()):
            if Path(path).exists():
                self._write(Path(path), int(quota))

    def _read(self, group: Path) -> int:
        if self.version == 1:
            return int((group / "cpu.cfs_quota_us").read_text())
        quota = (group / "cpu.max").read_text().split()[0]
        return -1 if quota == "max" else int(quota)

    def _write(self, group: Path, quota: int) -> None:
        if self.version == 1:
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{'max' if quota < 0 else quota} {PERIOD_US}")


def _enable_controllers(path: Path) -> None:
    """Enable all available controllers for the children of a v2 group."""
    available = (path / "cgroup.controllers").read_text().split()
    missing = [name for name in _NEEDED if name not in available]
    if missing:
        raise ClusterError(f"cgroup v2 controllers {', '.join(missing)} are not delegated to {path}")
    enabled = (path / "cgroup.subtree_control").read_text().split()
    wanted = [name for name in available if name not in enabled]
    if not wanted:
        return
    try:
        (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    except OSError as error:
        raise ClusterError(
            f"cannot enable cgroup controllers in {path}: {error.strerror}. In a container, run with the"
            " machine's cgroup namespace, or move this container's processes into a child group first."
        ) from None


def _deepest_first(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        return
    try:
        children = [path for path in top.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return
    for child in children:
        yield from _deepest_first(child)
    yield top


def _members(top: Path) -> str:
    found = []
    for group in _deepest_first(top):
        try:
            pids = (group / "cgroup.procs").read_text().split()
        except OSError:
            continue
        if pids:
            found.append(f"{group} still holds processes {', '.join(pids)}")
    return "\n".join(found)
