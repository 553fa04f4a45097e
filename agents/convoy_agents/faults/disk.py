"""FullDisk: a file in a volume of the pod that fills it up to a fraction.

Only a volume with its own size qualifies: an emptyDir with `medium: Memory`. On other volumes the file would
take the node's disk. A process in the pod's container writes the file, so its memory counts for the pod.
Measured magnitude: used bytes of the volume, divided by its size.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from convoy_agents.csi import mounts
from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Target
from convoy_agents.faults.helper import Helper
from convoy_agents.faults.pod_processes import ranks_container
from convoy_crds.terms import SHM_VOLUME

MAX_BYTES = 4 * 2**30
"""Size of the largest volume that may be filled."""
FILL_SECONDS = 20.0
"""Longest time to write the file."""
RESERVE_BYTES = 32 * 2**20
"""Bytes of the container's memory limit that stay free for the process that writes."""
_FOLDER = "volumes/kubernetes.io~empty-dir"
PROGRAM = """
import os, sys
file, left = int(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
for size in (2**20, 4096):
    block = bytes(size)
    try:
        while left >= size:
            left -= os.write(file, block)
    except OSError:
        pass
"""


class FullDisk(Fault):
    """A file that fills a volume of a pod."""

    def start(self, target: Target) -> None:
        """Write the file."""
        volume = self._volume(target.pod_uid)
        self.record.undo["volume"] = volume.name
        size, used = _space(volume)
        if size > MAX_BYTES:
            raise FaultError(
                f"volume {volume.name} has {size >> 20} MiB, more than {MAX_BYTES >> 20}: give it a sizeLimit"
            )
        self._volume_path = volume
        wanted = int(size * self.order.magnitude) - used
        if wanted > 0:
            self._fill(target.pod_uid, volume, wanted)
        self.active = True
        self.keep(target)

    def keep(self, target: Target) -> None:
        """Measure how full the volume is."""
        if not self._volume_path.is_dir():
            raise TargetGone(f"volume {self._volume_path.name} is gone")
        size, used = _space(self._volume_path)
        self.record.achieved = used / size if size else None

    def undo(self) -> None:
        """Remove the file."""
        name = self.record.undo.get("volume")
        if not name:
            return
        try:
            folder = os.open(self._pod_volumes(self.order.pod_uid) / name, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file_name, dir_fd=folder)
        finally:
            os.close(folder)

    def _fill(self, pod_uid: str, volume: Path, wanted: int) -> None:
        container = ranks_container(self.around.node, pod_uid)
        free = container.free_memory()
        if free is not None and free < wanted + RESERVE_BYTES:
            raise FaultError(
                f"the file needs {wanted >> 20} MiB, but the container's memory limit leaves {free >> 20} MiB"
            )
        self.save()
        folder = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.open(self._file_name, flags, 0o600, dir_fd=folder)
        except FileExistsError as error:
            raise FaultError(f"volume {volume.name} already has a file {self._file_name}") from error
        finally:
            os.close(folder)
        helper = Helper(PROGRAM, str(file), str(wanted), pass_fds=(file,))
        try:
            helper.run_in(container, "memory")
            if helper.wait(FILL_SECONDS) != 0:
                raise FaultError(f"volume {volume.name} was not filled within {FILL_SECONDS:.0f} s")
        finally:
            helper.stop()
            os.close(file)

    def _volume(self, pod_uid: str) -> Path:
        """Return the folder of the volume to fill. Raises FaultError if the pod has not exactly one."""
        folder = self._pod_volumes(pod_uid)
        table = mounts.table(self.around.mount_table.read_text())
        mounted = {self._seen(Path(mount.target)) for mount in table if mount.kind == "tmpfs"}
        found = {path.name: path for path in mounted if path.parent == folder and path.name != SHM_VOLUME}
        if self.order.volume:
            found = {name: path for name, path in found.items() if name == self.order.volume}
        if len(found) == 1:
            return next(iter(found.values()))
        wanted = self.order.volume or "any"
        raise FaultError(
            f"volume: FullDisk needs one emptyDir with medium Memory and a sizeLimit (name: {wanted}); the "
            f"pod has {', '.join(sorted(found)) or 'none'}"
        )

    def _pod_volumes(self, pod_uid: str) -> Path:
        return self._seen(self.around.kubelet_dir / "pods" / pod_uid / _FOLDER)

    def _seen(self, path: Path) -> Path:
        """Return the path of a node's file as this process sees it."""
        return self.around.root / path.relative_to("/")

    @property
    def _file_name(self) -> str:
        return f".convoy-{self.order.id}"


def _space(volume: Path) -> tuple[int, int]:
    """Return the size and the used bytes of a volume."""
    found = os.statvfs(volume)
    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize
