"""Installs published packages for a comparison, in folders outside the Python environment."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.run import run

_SECONDS = 300.0


def install(requirements: Sequence[str]) -> Path:
    """Return the folder from which to import the packages of pip's requirements, without their dependencies.
    Install them if they are missing. Raises ClusterError if that fails.
    """
    digest = hashlib.sha256("\0".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    folder = files.cache_root() / "bench" / digest
    with files.locked(folder.parent / ".lock", deadline=_SECONDS, what="the packages to compare with"):
        if not folder.exists():
            with files.building(folder) as temporary:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                run([*pip, "--no-deps", "--target", temporary, *requirements], deadline=_SECONDS)
    return folder


def installed(requirements: Sequence[str]) -> Path | None:
    """Return the folder of the packages; None, with a message, if they cannot be installed."""
    try:
        return install(requirements)
    except ClusterError as error:
        print(f"{' '.join(requirements)} cannot be installed: {error}", file=sys.stderr)
        return None
