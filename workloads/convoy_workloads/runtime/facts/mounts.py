"""Finds the data volumes of a pod in the mount table of a process."""

from __future__ import annotations

import re
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
MAX_FOLDERS = 4
"""Maximum number of data volumes. The others are left out."""
_FILE_SYSTEMS = frozenset(
    {"proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2", "tmpfs", "overlay", "ramfs", "bpf"}
)
"""File systems that hold no data: those of the kernel, of memory, and of the image."""
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/var/lib/kubelet")
_SECRETS = ("/var/run/secrets", "/run/secrets")
_CONVOY = re.compile(r"(/var)?/run/convoy(-[a-z]+)?(/|$)")
"""Matches the mount paths of Convoy's own volumes."""
_KUBELET = re.compile(r"kubernetes\.io~(configmap|secret|projected|downward-api)|/etc-hosts$|/containers/")
"""Matches the source of a mount that the kubelet or the container runtime fills."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def data_folders(table: str) -> list[str]:
    """Return the mount paths of the data volumes, from the text of /proc/self/mountinfo, in their order."""
    found: list[str] = []
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 7 or "-" not in fields:
            continue
        root, path, kind = _plain(fields[3]), _plain(fields[4]), fields[fields.index("-") + 1]
        if kind not in _FILE_SYSTEMS and not _KUBELET.search(root) and not _is_system(path):
            found.append(path)
    return list(dict.fromkeys(found))[:MAX_FOLDERS]


def _is_system(path: str) -> bool:
    inside = any(path == one or path.startswith(f"{one}/") for one in (*_SYSTEM, *_SECRETS))
    return path == "/" or inside or _CONVOY.match(path) is not None


def _plain(text: str) -> str:
    """Return a field without the kernel's escapes, such as `\\040` for a space."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
