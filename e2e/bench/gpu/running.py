"""Runs a part of the bench in a process of its own, because a part that hangs or crashes in the driver must
not end the others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.gpu.parts import PARTS


class SavedFigures(Figures):
    """Figures that are written to a file at each change, so that a part that is killed leaves them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def add(self, metric: Metric, value: float | None) -> None:
        """Add a value."""
        super().add(metric, value)
        self._save()

    def add_unmeasured(self, metric: Metric, why: str) -> None:
        """Record that a metric cannot be measured, and why."""
        super().add_unmeasured(metric, why)
        self._save()

    def merge(self, others: Figures) -> None:
        """Add all metrics and values of `others`."""
        super().merge(others)
        self._save()

    def _save(self) -> None:
        body = {name: [dataclasses.asdict(one), self.values[name]] for name, one in self.metrics.items()}
        self._path.write_text(json.dumps(body))


def read(path: Path) -> Figures:
    """Return the figures in a file; none if there is no file."""
    found = Figures()
    body = json.loads(path.read_text()) if path.exists() else {}
    for name, (metric, values) in body.items():
        found.metrics[name], found.values[name] = Metric(**metric), values
    return found


def run_part(name: str, small: bool) -> tuple[Figures, str]:
    """Measure a part within its time limit. Return its figures, and the reason if it has failed."""
    with tempfile.TemporaryDirectory(prefix="convoy-gpu-") as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "e2e.bench.gpu.part", name, str(path), *(["small"] * small)]
        process = subprocess.Popen(command, start_new_session=True)
        why = ""
        try:
            code = process.wait(PARTS[name].seconds)
            why = f"ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            why = f"ran longer than {PARTS[name].seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return read(path), why
