"""How the processes of pytest-xdist share the tests, with `--dist loadgroup`.

A module's tests run in one process, for its fixtures. All modules of the dashboard run in the same process,
since they share a browser and a dashboard. The marks of `loadgroup` itself have no effect under this pytest.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = PurePosixPath("tests/integration")
LONGEST = (
    "dashboard",
    "operator/test_leadership.py",
    "agents/test_memory_training.py",
    "agents/test_store_faults.py",
    "workloads/test_training.py",
    "agents/test_kills.py",
    "agents/test_dcp.py",
    "workloads/test_warm_and_cold.py",
    "workloads/test_local.py",
    "operator/test_template_fuzz.py",
    "chart/test_effects.py",
)
"""Groups that take longest: they start first, so that no process ends long after the others."""


def group(nodeid: str) -> str:
    """The name of a test's group."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    if not path.is_relative_to(HERE):
        return str(path)
    own = path.relative_to(HERE)
    return own.parts[0] if own.parts[0] in LONGEST else str(own)


def rank(item: pytest.Item) -> int:
    """The place of a test's group among those that take longest."""
    found = group(item.nodeid)
    return LONGEST.index(found) if found in LONGEST else len(LONGEST)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each group to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
