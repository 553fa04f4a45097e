"""Installs libraries of other projects for the comparison, in folders outside the Python environment."""

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
"""Pip requirements of each library, by row name. The environment already has all other packages that a save
to memory imports.
"""
_SECONDS = 300.0


def installed(name: str) -> Path:
    """Return the folder from which to import a library. Install the library if it is missing.

    Raise ClusterError if the installation fails.
    """
    wanted = LIBRARIES[name]
    digest = hashlib.sha256("\0".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    folder = files.cache_root() / "bench" / digest
    with files.locked(folder.parent / ".lock", deadline=_SECONDS, what="the libraries to compare with"):
        if not folder.exists():
            with files.building(folder) as temporary:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                run([*pip, "--no-deps", "--target", temporary, *wanted], deadline=_SECONDS)
    return folder
