"""Distributes the tests among the processes of pytest-xdist with `--dist loadgroup`.

The tests of a module run in one process because they share fixtures. All modules of the dashboard run in
the same process because they share a browser and a dashboard. The marks of `loadgroup` have no effect under
this pytest.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = PurePosixPath("tests/integration")
LONGEST = (
    "dashboard",
    "ray/test_live.py",
    "workloads/test_training.py",
    "workloads/test_engines.py",
    "workloads/test_aperon_index.py",
    "chart/test_effects.py",
    "workloads/test_warm_and_cold.py",
    "workloads/test_local.py",
    "ray/test_cluster.py",
    "agents/test_store_faults.py",
    "workloads/test_simulation_engine.py",
    "workloads/test_serving.py",
    "operator/test_leadership.py",
    "workloads/test_replacement.py",
    "agents/test_kills.py",
    "crds/test_gitops.py",
    "agents/test_memory_training.py",
    "agents/test_dcp.py",
    "operator/test_template_fuzz.py",
)
"""The groups that take longest. They start first, so that no process ends long after the others."""


def group(nodeid: str) -> str:
    """Return the name of a test's group."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    if not path.is_relative_to(HERE):
        return str(path)
    own = path.relative_to(HERE)
    return own.parts[0] if own.parts[0] in LONGEST else str(own)


def rank(item: pytest.Item) -> int:
    """Return the position of a test's group in LONGEST, or its length for other groups."""
    found = group(item.nodeid)
    return LONGEST.index(found) if found in LONGEST else len(LONGEST)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns each group to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
