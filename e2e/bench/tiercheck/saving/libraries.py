"""Other projects' libraries that the bench saves with: beside the environment, in a folder of their own."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.run import run

DLROVER, RESILIENCY = "DLRover flash checkpoint", "nvidia-resiliency-ext local checkpoint"
LIBRARIES = {
    DLROVER: ("dlrover==0.6.1", "psutil==7.2.1"),
    RESILIENCY: ("nvidia-resiliency-ext==0.4.1",),
}
"""Requirements by the rows' names. The environment has whatever else a save in memory imports."""
_SECONDS = 300.0


def installed(name: str) -> Path:
    """The folder to import one from; installed there when it is not. ClusterError."""
    wanted = LIBRARIES[name]
    digest = hashlib.sha256("\0".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    folder = files.cache_root() / "bench" / digest
    with files.locked(folder.parent / ".lock", deadline=_SECONDS, what="the libraries to compare with"):
        if not folder.exists():
            with files.building(folder) as temporary:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                run([*pip, "--no-deps", "--target", temporary, *wanted], deadline=_SECONDS)
    return folder
