"""A control group (cgroup) for one child process. Through the cgroup, the agent can kill all processes that
the child started.

The cgroup is optional. If the agent may not create cgroups, it kills only the child's process group.
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
    """A context manager that creates a cgroup below the agent's own cgroup and removes it afterwards. It
    enables no controllers for the cgroup. If it did, the kernel would forbid processes in the agent's
    own cgroup.
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
        # If the child is stuck, the kernel refuses to remove its cgroup. Ignore the error and leave the
        # cgroup.
        with contextlib.suppress(OSError):
            if self._path:
                self._path.rmdir()

    @property
    def path(self) -> Path | None:
        """Return the cgroup's folder; None if the cgroup could not be created."""
        return self._path

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return a command that enters the cgroup and then executes `argv`.

        The command must enter the cgroup itself. If the agent moved the process afterwards, the process
        might already have started children outside the cgroup.
        """
        if not self._path:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "sh", str(self._path / "cgroup.procs"), *argv]

    def kill(self) -> None:
        """Kill all processes in the cgroup with SIGKILL, by writing to `cgroup.kill` (since Linux 5.14)."""
        with contextlib.suppress(OSError):
            if self._path:
                # Mode r+ never creates a file, so nothing is written if the cgroup is already removed.
                with (self._path / "cgroup.kill").open("r+") as file:
                    file.write("1")


def own_v2() -> Path | None:
    """Return the folder of the agent's cgroup in the unified hierarchy (cgroup v2); None if the node has no
    such hierarchy.
    """
    return _find("0", "", "cgroup2", "")


def own_v1(controller: str) -> Path | None:
    """Return the folder of the agent's cgroup in the hierarchy of a cgroup v1 controller; None if the node
    has no such hierarchy.
    """
    return _find("", controller, "cgroup", controller)


def nearest_with(folder: Path | None, name: str) -> Path | None:
    """Return the nearest folder, from `folder` upwards, that contains a file `name`; None if there is none.

    A cgroup without controllers lacks the controllers' files. The file of the nearest ancestor then
    applies.
    """
    if folder is None:
        return None
    return next((one for one in (folder, *folder.parents) if (one / name).is_file()), None)


def _find(number: str, controller: str, kind: str, option: str) -> Path | None:
    """Return the folder of the agent's cgroup in one hierarchy: the hierarchy's mount point plus the
    agent's path in /proc/self/cgroup. Return None if there is no such hierarchy.

    The hierarchy is the one with the id `number` or with this `controller`. Its mount has the file system
    type `kind` and the mount option `option`. An empty argument matches nothing, except that an empty
    `option` matches every mount.
    """
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
            # In a cgroup namespace the path may be outside the mounted hierarchy. The mount point itself is
            # then the best result.
            return folder if folder.is_dir() else Path(target)
    return None
