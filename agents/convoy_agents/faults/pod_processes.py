"""The control groups and processes of a pod, with cgroup v1 and v2.

The agent sees them only with the node's process namespace (the chart's value `faultInjection.enabled` sets
hostPID): through the root folder of the node's first process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convoy_agents.faults.error import FaultError, TargetGone

PERIOD_US = 100_000
"""Period of a quota in microseconds."""
MIN_QUOTA_US = 1000
"""Smallest quota that the kernel accepts, in microseconds."""
_DEPTH = 6
"""Levels below the top folder at which a pod's group may be. Kubelets use 3 or 4."""
_POD = re.compile(r"^pod|-pod")
"""Matches the name of a pod's group."""
_NO_LIMIT = 2**60
"""Bytes from which a memory limit counts as none: cgroup v1 shows a number just below 2^63."""


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The folders of the node that the agent sees."""

    cgroups: Path
    """Mount point of the control groups."""
    proc: Path
    """The process file system of the node's process namespace."""

    @classmethod
    def at(cls, root: Path, proc: Path) -> NodeFolders:
        """Return the folders of a node, by its root folder and its process file system."""
        return cls(root / "sys/fs/cgroup", proc)

    @property
    def version(self) -> int:
        """Return the version of the control groups that limits processors: 1 or 2."""
        return 2 if (self.cgroups / "cgroup.controllers").exists() else 1

    def hierarchy(self, controller: str) -> Path:
        """Return the top folder of a controller's hierarchy. Raises FaultError if it is not mounted."""
        if self.version == 2:
            return self.cgroups
        named = [self.cgroups / controller] if (self.cgroups / controller).is_dir() else []
        folders = self.cgroups.iterdir() if self.cgroups.is_dir() else iter(())
        for path in named or (one for one in sorted(folders) if controller in one.name.split(",")):
            return path
        raise FaultError(
            f"the agent sees no control groups at {self.cgroups}: set the chart's value "
            "faultInjection.enabled"
        )


@dataclass(frozen=True, slots=True)
class Container:
    """The control group of one container, relative to each hierarchy."""

    node: NodeFolders
    path: str

    def folder(self, controller: str = "cpu") -> Path:
        """Return the container's folder in a controller's hierarchy."""
        return self.node.hierarchy(controller) / self.path

    @property
    def exists(self) -> bool:
        """Return True until the container has ended."""
        return self.folder().is_dir()

    def pids(self) -> list[int]:
        """Return the processes of the container that this agent sees."""
        return sorted(_pids(self.folder()))

    def quota(self) -> str:
        """Return the processor quota as the kernel shows it. Raises TargetGone after the container's end."""
        return _read(self.folder() / self._quota_file)

    def set_quota(self, text: str) -> None:
        """Write a processor quota in the kernel's form. Do nothing after the container's end."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (self.folder() / self._quota_file).write_text(text)

    def limit_cores(self, cores: float) -> None:
        """Limit the container to this many processors, unless its limit is already lower."""
        known = self.cores()
        if known is None or cores < known:
            quota = max(MIN_QUOTA_US, int(cores * self._period()))
            self.set_quota(str(quota) if self.node.version == 1 else f"{quota} {self._period()}")

    def cores(self) -> float | None:
        """Return the number of processors to which the container itself is limited; None without a limit."""
        word = self.quota().split()[0]
        return None if word in ("max", "-1") else int(word) / self._period()

    def capacity(self) -> float:
        """Return the number of processors that the container can use: its limit, its pod's, or the node's."""
        pod = Container(self.node, str(Path(self.path).parent))
        limits = [one for one in (self.cores(), pod.cores()) if one is not None]
        return min([float(os.cpu_count() or 1), *limits])

    def cpu_seconds(self) -> float:
        """Return the processor seconds that the container has used. Raises TargetGone after its end."""
        if self.node.version == 1:
            return int(_read(self.folder("cpuacct") / "cpuacct.usage")) / 1e9
        lines = dict(line.split() for line in _read(self.folder() / "cpu.stat").splitlines())
        return int(lines["usage_usec"]) / 1e6

    def free_memory(self) -> int | None:
        """Return the bytes that the container may still use; None without a limit."""
        folder = self.folder("memory")
        limit_file, use_file = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if self.node.version == 1
            else ("memory.max", "memory.current")
        )
        limit = _read(folder / limit_file)
        if limit == "max" or int(limit) >= _NO_LIMIT:
            return None
        return int(limit) - int(_read(folder / use_file))

    def enter(self, pid: int, *controllers: str) -> None:
        """Move a process into the container's groups of these controllers. Raises TargetGone after the
        container's end.
        """
        folders = {self.folder(one) for one in controllers}
        for folder in sorted(folders):
            try:
                (folder / "cgroup.procs").write_text(str(pid))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise TargetGone(str(error)) from error

    @property
    def _quota_file(self) -> str:
        return "cpu.cfs_quota_us" if self.node.version == 1 else "cpu.max"

    def _period(self) -> int:
        if self.node.version == 1:
            return int(_read(self.folder() / "cpu.cfs_period_us"))
        words = self.quota().split()
        return int(words[1]) if len(words) > 1 else PERIOD_US


def containers(node: NodeFolders, pod_uid: str) -> list[Container]:
    """Return the containers of a pod, its sandbox included. Raises TargetGone if the pod has no group, and
    FaultError if the agent cannot see the node's processes.
    """
    if os.getpid() == 1:
        raise FaultError(
            "the agent has a process namespace of its own: set the chart's value faultInjection.enabled"
        )
    top = node.hierarchy("cpu")
    group = _pod_folder(top, pod_uid)
    if group is None:
        raise TargetGone(f"pod {pod_uid} has no control group on this node")
    folders = sorted(path for path in group.iterdir() if path.is_dir())
    return [Container(node, str(path.relative_to(top))) for path in folders]


def ranks_container(node: NodeFolders, pod_uid: str) -> Container:
    """Return the container that runs a pod's ranks. Raises FaultError if none runs."""
    for one in containers(node, pod_uid):
        if any(_rank(node, pid) is not None for pid in one.pids()):
            return one
    raise FaultError(f"no rank of pod {pod_uid} runs, or the agent does not see it (hostPID)")


def rank_pid(node: NodeFolders, pod_uid: str, rank: int) -> int | None:
    """Return the process of a rank, by its number in the job; None while it does not run."""
    for one in containers(node, pod_uid):
        found = [pid for pid in one.pids() if _rank(node, pid) == str(rank)]
        # Processes that the rank has forked look the same, so take the one that none of them has forked.
        for pid in found:
            if _parent(node, pid) not in found:
                return pid
    return None


def kill_process(node: NodeFolders, pod_uid: str, pid: int) -> bool:
    """Send SIGKILL to a process of a pod. Return False if the process is no longer in the pod.

    The descriptor names this process even if its number is used again. So the check of the pod comes second.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not any(pid in one.pids() for one in containers(node, pod_uid)):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _pod_folder(top: Path, pod_uid: str) -> Path | None:
    """Return the folder of a pod's group. The names are those of the kubelet's two cgroup drivers."""
    plain, slice_name = f"pod{pod_uid}", f"-pod{pod_uid.replace('-', '_')}.slice"
    for folder, children, _ in os.walk(top):
        here = Path(folder)
        for name in children:
            if name == plain or name.endswith(slice_name):
                return here / name
        deep = len(here.relative_to(top).parts) + 1 >= _DEPTH
        # Do not search other pods.
        children[:] = [] if deep else [one for one in children if not _POD.search(one)]
    return None


def _pids(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            for word in (Path(folder) / "cgroup.procs").read_text().split():
                yield int(word)


def _rank(node: NodeFolders, pid: int) -> str | None:
    """Return the number of the rank that a process belongs to; None if it belongs to none.

    The launcher names a rank that it forks. One that it executes has the number in its environment.
    """
    process = node.proc / str(pid)
    try:
        name = (process / "comm").read_text().strip()
        if name.startswith("rank-"):
            return name.removeprefix("rank-")
        for one in (process / "environ").read_bytes().split(b"\0"):
            if one.startswith(b"RANK="):
                return one.removeprefix(b"RANK=").decode(errors="replace")
    except OSError:
        pass
    return None


def _parent(node: NodeFolders, pid: int) -> int:
    """Return the parent of a process; 0 if the process has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((node.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TargetGone(str(error)) from error
    except OSError as error:
        if error.errno == errno.ENODEV:  # The group was removed between open and read.
            raise TargetGone(str(error)) from error
        raise
