"""Runs shipped experiments on real nodes, as they are, and keeps their reports in docs/reports."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from convoy_workloads.bench.figures import CHECKOUT, Figures, Metric
from e2e.cluster.cluster import Cluster
from e2e.drive.experiments import Experiments
from e2e.drive.faults_allowed import faults_allowed
from e2e.drive.jobs import restricted_namespace
from e2e.drive.s3_server import checkpoint_store, s3_server

SHIPPED = ("in-place-restart", "journal", "guard-bad-fleet", "odb", "adaptiveload", "casgd", "prelort")
NEEDED = {"guard-bad-fleet": ("guard-quick.yaml",)}
"""Examples that must be applied before an experiment, by its name."""
NODES = 6
DEADLINE_SECONDS = 7200.0
REPORTS = CHECKOUT / "docs" / "reports"
_EXAMPLES = CHECKOUT / "examples" / "experiments"


def measure(cluster: Cluster, name: str, found: Figures) -> None:
    """Run a shipped experiment to its end. Keep its report and add its figures."""
    with faults_allowed(cluster), s3_server(cluster) as server, checkpoint_store(cluster, server) as store:
        experiments = Experiments.of(cluster, restricted_namespace(cluster, name))
        for file in NEEDED.get(name, ()):
            cluster.kubectl("apply", "-f", str(CHECKOUT / "examples" / file))
        spec = yaml.safe_load((_EXAMPLES / f"{name}.yaml").read_text())["spec"]
        started = time.monotonic()
        experiments.apply(name, {**spec, "store": store})
        ended = partial(experiments.ended, name)
        phase = experiments.wait(ended, DEADLINE_SECONDS, "the end of the experiment")
        seconds = time.monotonic() - started
        status = experiments.status(name)
        if "artefact" not in status:
            raise RuntimeError(f"{name} ended as {phase}: {status.get('message', '')}")
        with tempfile.TemporaryDirectory() as folder:
            experiments.run("report", name, "--output", str(Path(folder) / name))
            keep(Path(folder) / name, REPORTS / name)
    add_rows(found, json.loads((REPORTS / name / "result.json").read_text()), seconds)


def keep(report: Path, folder: Path) -> None:
    """Replace a folder by a report."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(report, folder)


def add_rows(found: Figures, result: Mapping[str, Any], seconds: float) -> None:
    """Add the figures of `result.json`: blocks, controls, and the effect of each prediction."""
    name, blocks = result["experiment"], result["blocks"]
    planned = blocks["planned"]
    found.add(Metric(f"{name}: ended blocks", "blocks", planned, higher_is_better=True), blocks["ended"])
    found.add(Metric(f"{name}: failed blocks", "blocks", 0), blocks["failed"])
    passed = [one["passed"] for one in result["controls"]]
    controls = Metric(f"{name}: failed controls", "controls", 0, spread=f"of {len(passed)}")
    found.add(controls, passed.count(False))
    found.add(Metric(f"{name}: time", "minutes"), seconds / 60)
    for one in result["hypotheses"]:
        _add_effect(found, name, one)


def _add_effect(found: Figures, name: str, one: Mapping[str, Any]) -> None:
    arms = f"{one['candidate']} against {one['comparator']}"
    title = f"{name}, {one['prediction']}: effect on {one['outcome']}, {arms}"
    words = [one.get("verdict", "no verdict")]
    if "low" in one:
        words.append(f"interval {one['low']:.4g} to {one['high']:.4g}")
    words += [f"p {one['p']:.3g}", f"{one['blocks']} blocks"]
    found.add(Metric(title, one["unit"], spread=", ".join(words)), one.get("effect"))
