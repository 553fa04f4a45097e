"""Installs published packages for the comparison, in folders outside the Python environment."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from convoy_workloads.engines.odb.package_batches import REQUIREMENT
from convoy_workloads.engines.prelort.flower import REQUIREMENTS
from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.run import run

PACKAGES = {"odb": REQUIREMENT, "prelort": REQUIREMENTS}
"""Pip requirements, between spaces, of the packages to compare an engine with, by name of the engine."""
_SECONDS = 300.0


def installed(name: str) -> Path | None:
    """Return the folder from which to import the package. Install the package if it is missing. Return None
    if the installation fails.
    """
    digest = hashlib.sha256("\0".join([sys.version, PACKAGES[name]]).encode()).hexdigest()[:16]
    folder = files.cache_root() / "bench" / digest
    try:
        with files.locked(folder.parent / ".lock", deadline=_SECONDS, what="the packages to compare with"):
            if not folder.exists():
                with files.building(folder) as temporary:
                    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                    run(
                        [*pip, "--no-deps", "--target", temporary, *PACKAGES[name].split()], deadline=_SECONDS
                    )
    except ClusterError as error:
        print(f"{PACKAGES[name]} cannot be installed: {error}", file=sys.stderr)
        return None
    return folder
