"""A child's own control group (cgroup), to kill all processes that the child started.

It is optional: if the agent may not create cgroups, only the child's process group is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_numbers = itertools.count()
_ENTER = '{ echo $$ >"$1"; } 2>/dev/null; shift; exec "$@"'


class Group:
    """A context manager for a cgroup below the agent's own. It enables no controllers, so the kernel allows
    processes at every level.
    """

    def __init__(self) -> None:
        self._path: Path | None = None

    def __enter__(self) -> Group:
        with contextlib.suppress(OSError, ValueError):
            if own := own_v2():
                path = own / f"convoy-probe-{os.getpid()}-{next(_numbers)}"
                path.mkdir()
                self._path = path
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A stuck child keeps its cgroup, because the kernel refuses to remove it.
        with contextlib.suppress(OSError):
            if self._path:
                self._path.rmdir()

    @property
    def path(self) -> Path | None:
        """The cgroup's folder; None if it could not be created."""
        return self._path

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return a command that enters the cgroup before it executes `argv`. If the agent moved the process
        later, the process might already have children outside the cgroup.
        """
        if not self._path:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "sh", str(self._path / "cgroup.procs"), *argv]

    def kill(self) -> None:
        """Kill all processes in the cgroup with SIGKILL (`cgroup.kill`, Linux 5.14)."""
        with contextlib.suppress(OSError):
            if self._path:
                # Mode r+ never creates the file, even if the cgroup was removed.
                with (self._path / "cgroup.kill").open("r+") as file:
                    file.write("1")


def own_v2() -> Path | None:
    """Return the agent's folder in the unified cgroup hierarchy; None if there is none."""
    return _find("0", "", "cgroup2", "")


def own_v1(controller: str) -> Path | None:
    """Return the agent's folder in the hierarchy of a cgroup v1 controller; None if there is none."""
    return _find("", controller, "cgroup", controller)


def nearest_with(folder: Path | None, name: str) -> Path | None:
    """Return the nearest folder, from `folder` upwards, that contains the file. A child's own cgroup has no
    controllers and thus lacks their files.
    """
    if folder is None:
        return None
    return next((one for one in (folder, *folder.parents) if (one / name).is_file()), None)


def _find(number: str, controller: str, kind: str, option: str) -> Path | None:
    """Return the agent's folder in a hierarchy: the mount point plus the path in /proc/self/cgroup."""
    below = None
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        hierarchy, names, path = line.split(":", 2)
        if (number and hierarchy == number) or (controller and controller in names.split(",")):
            below = path
    if below is None:
        return None
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, found, options = line.split()[:4]
        if found == kind and (not option or option in options.split(",")):
            folder = Path(target) / below.lstrip("/")
            # In a cgroup namespace the path may lead outside the mounted hierarchy.
            return folder if folder.is_dir() else Path(target)
    return None
