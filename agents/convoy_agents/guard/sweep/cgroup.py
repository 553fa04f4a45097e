"""A control group of a child's own, to kill all that it has started.

It is an extra: where the agent may not make groups, the child's process group has to do.
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
    """A group below the agent's own, for as long as the block: without controllers, any may hold it."""

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
        # A child that is stuck keeps its group: nothing more can be done about it.
        with contextlib.suppress(OSError):
            if self._path:
                self._path.rmdir()

    @property
    def path(self) -> Path | None:
        """Its folder; None where there is none."""
        return self._path

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run inside: put in from without, it might have started others before."""
        if not self._path:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "sh", str(self._path / "cgroup.procs"), *argv]

    def kill(self) -> None:
        """SIGKILL for everyone in it (Linux 5.14)."""
        with contextlib.suppress(OSError):
            if self._path:
                # Never made anew: in a folder that is gone it would be a file of its own.
                with (self._path / "cgroup.kill").open("r+") as file:
                    file.write("1")


def own_v2() -> Path | None:
    """The agent's own folder in the unified hierarchy."""
    return _find("0", "", "cgroup2", "")


def own_v1(controller: str) -> Path | None:
    """The agent's own folder in the hierarchy of a controller."""
    return _find("", controller, "cgroup", controller)


def nearest_with(folder: Path | None, name: str) -> Path | None:
    """The nearest group, from this one up, that has a file: a child's own group has no controllers."""
    if folder is None:
        return None
    return next((one for one in (folder, *folder.parents) if (one / name).is_file()), None)


def _find(number: str, controller: str, kind: str, option: str) -> Path | None:
    """The agent's own folder in a hierarchy: a mount of it, and what /proc says of the way from there."""
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
            # In a namespace of groups the path may lead out of what is mounted.
            return folder if folder.is_dir() else Path(target)
    return None
