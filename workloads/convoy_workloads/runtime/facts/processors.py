"""Reads the processor time of this process's container."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


class ContainerClock:
    """The processor seconds that the container has used. cgroup v2 has them in cpu.stat, v1 in cpuacct.usage.

    With a private cgroup namespace the root of the mount is the container's own group. Otherwise the path in
    /proc/self/cgroup leads to it.
    """

    def __init__(self, root: Path = ROOT, membership: Path = MEMBERSHIP) -> None:
        files = _candidates(root, _read(membership))
        self._file = next((one for one in files if _seconds(one) is not None), None)

    def seconds(self) -> float | None:
        """Return the seconds since the container's start; None if the kernel does not show them."""
        return _seconds(self._file) if self._file is not None else None


def _candidates(root: Path, membership: str) -> list[Path]:
    """Return the files that may have the time, the most likely one first."""
    found: list[Path] = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        inside = place.strip().strip("/")
        if controllers == "":
            found += [root / inside / "cpu.stat", root / "cpu.stat"]
        elif "cpuacct" in controllers.split(","):
            for folder in (root / controllers, root / "cpuacct"):
                found += [folder / inside / "cpuacct.usage", folder / "cpuacct.usage"]
    return found


def _seconds(path: Path) -> float | None:
    text = _read(path)
    if path.name == "cpuacct.usage":
        return int(text) / 1e9 if text.strip().isdigit() else None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec" and value.strip().isdigit():
            return int(value) / 1e6
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
