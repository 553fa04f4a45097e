"""Creates and awaits Experiments in tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_crds.experiment_status import EXPERIMENT_ENDED
from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Objects
from e2e.drive.serving_jobs import CONVOY


class Experiments(Objects):
    """The Experiments of one namespace."""

    KIND = "Experiment"
    PLURAL = "experiments"

    def ended(self, name: str) -> str:
        """Return the phase of an experiment that has ended; empty if it has not."""
        phase = self.status(name).get("phase", "")
        return phase if phase in EXPERIMENT_ENDED else ""

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run `convoy experiment` in the namespace. Return its output."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        command = [str(CONVOY), "experiment", *arguments, "--namespace", self.namespace]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


Key = tuple[str, float | None, int, str, str]


def figures(blocks: Iterable[Mapping[str, Any]]) -> dict[Key, float]:
    """Return the figures of blocks, by perturbation, magnitude, repetition, arm and outcome."""
    return {
        (
            block.get("perturbation", ""),
            block.get("magnitude"),
            block["repetition"],
            one["arm"],
            one["outcome"],
        ): one["value"]
        for block in blocks
        for one in block.get("figures", ())
    }


def children(cluster: Cluster, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the child TrainingJobs of an experiment."""
    found = cluster.get("-n", namespace, "trainingjobs", "-l", f"convoy.dev/experiment={name}")
    items: list[dict[str, Any]] = found["items"]
    return items
