"""Health sweeps: inventories of all nodes, and tests of a spot node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from convoy_crds.meta import API_VERSION
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.soak.part import Part
from e2e.cluster.cluster import Cluster

EVERY_SECONDS = 90.0
DEADLINE = "4m"


class Sweeps(Part):
    """The HealthSweeps of the soak."""

    def __init__(self, cluster: Cluster, alone: Sequence[str], report: Callable[[str], None]) -> None:
        """`alone`: nodes of which every second sweep tests one by itself."""
        super().__init__(report)
        self._cluster = cluster
        self._alone = list(alone)
        self._names: list[str] = []
        self._open: set[str] = set()
        self._due = 0.0

    def check(self, create: bool) -> None:
        """Check the sweeps that run; with `create`, start the next one when it is due."""
        for name in sorted(self._open):
            status: dict[str, Any] = self._cluster.get("healthsweeps", name).get("status", {})
            if status.get("completionTime"):
                self._open.discard(name)
                for node in status.get("nodes", ()):
                    if node.get("verdict") == "Fail":
                        self.wrong(f"sweep {name}: node {node['node']} failed: {json.dumps(node)[:300]}")
        if create and time.monotonic() > self._due and not self._open:
            self._create(len(self._names))

    def _create(self, number: int) -> None:
        where: dict[str, Any] = {"selector": {}, "tiers": ["L0"]}
        if number % 2:
            where = {"nodes": [self._alone[number // 2 % len(self._alone)]], "tiers": ["L0", "L1"]}
        name = f"soak-{number}"
        body = {"apiVersion": API_VERSION, "kind": "HealthSweep", "metadata": {"name": name}}
        text = json.dumps({**body, "spec": {**where, "deadline": DEADLINE}})
        self._cluster.kubectl("apply", "-f", "-", text=text)
        self._names.append(name)
        self._open.add(name)
        self._due = time.monotonic() + EVERY_SECONDS

    def at_rest(self) -> bool:
        """Return True if no sweep runs."""
        return not self._open

    def delete(self) -> None:
        """Delete all sweeps. Those that have not ended are unexpected."""
        for name in sorted(self._open):
            self.wrong(f"sweep {name} has not ended")
        self._cluster.kubectl("delete", "healthsweeps", "--all")

    def record(self, found: Figures) -> None:
        """Add the counts of sweeps."""
        found.add(Metric("health sweeps", "sweeps"), len(self._names))
        found.add(Metric("sweeps that failed a good node or did not end", "sweeps", 0), len(self.unexpected))
