"""Experiments that run one after another and must all find the same figures."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from convoy_crds.meta import API_VERSION
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.soak.part import Part
from e2e.cluster import files
from e2e.drive.experiments import Experiments, Key, figures
from e2e.drive.serving_jobs import CONVOY

PLAN = files.CHECKOUT / "examples" / "experiments" / "intervals-small.yaml"
TRY_SECONDS = 600.0


def undisturbed(spec: dict[str, Any]) -> dict[Key, float]:
    """Return the figures of a plan that runs on this machine, without a cluster."""
    with tempfile.TemporaryDirectory(prefix="convoy-soak-") as name:
        plan, output = Path(name, "plan.yaml"), Path(name, "try")
        body = {"apiVersion": API_VERSION, "kind": "Experiment", "metadata": {"name": "plan"}, "spec": spec}
        plan.write_text(yaml.safe_dump(body))
        command = [str(CONVOY), "experiment", "try", str(plan), "-o", str(output)]
        subprocess.run(command, check=True, capture_output=True, timeout=TRY_SECONDS)
        return figures(json.loads((output / "data.json").read_text())["blocks"])


class ExperimentRuns(Part):
    """The Experiments of the soak."""

    def __init__(self, experiments: Experiments, store: str, report: Callable[[str], None]) -> None:
        super().__init__(report)
        self.experiments = experiments
        plan: dict[str, Any] = yaml.safe_load(PLAN.read_text())["spec"]
        self._spec = {**plan, "store": store, "parallelism": 1}
        self._expected: dict[Key, float] = {}
        self._names: list[str] = []
        self._running = False
        self.ended = 0

    def start(self) -> None:
        """Run the plan on this machine, for the figures that it must have."""
        self._expected = undisturbed(self._spec)

    def check(self, create: bool) -> None:
        """Check the experiment that runs; with `create`, start the next one after it."""
        if self._running:
            name = self._names[-1]
            phase = self.experiments.ended(name)
            if not phase:
                return
            status = self.experiments.status(name)
            self._running = False
            self.ended += 1
            if phase != "Succeeded" or status.get("failedBlocks"):
                self.wrong(f"experiment {name}: {status.get('reason')}: {status.get('message')}")
            elif figures(status["blocks"]) != self._expected:
                self.wrong(f"experiment {name} has other figures than on one machine")
        if create:
            name = f"intervals-{len(self._names)}"
            self.experiments.apply(name, self._spec)
            self._names.append(name)
            self._running = True

    def at_rest(self) -> bool:
        """Return True if no experiment runs."""
        return not self._running

    def delete(self) -> None:
        """Delete all experiments. One that has not ended is unexpected."""
        if self._running:
            status = self.experiments.status(self._names[-1])
            self.wrong(f"experiment {self._names[-1]} has not ended: {status.get('message')}")
        self.experiments.delete_all()

    def record(self, found: Figures) -> None:
        """Add the counts of experiments."""
        found.add(Metric("experiments that ended", "experiments"), self.ended)
        found.add(Metric("experiments with other figures or ends", "experiments", 0), len(self.unexpected))
