"""The layers of tests that run on each minor version of Kubernetes, and how their results are read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from e2e.cluster import files, versions
from e2e.cluster.errors import ClusterError
from e2e.compat.results import LayerResult


@dataclass(frozen=True)
class Layer:
    """Tests that run as one pytest process."""

    name: str
    description: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    deadline: float
    """Maximum seconds of the whole run."""


LAYERS = (
    Layer(
        "integration",
        "all integration tests",
        ("tests/integration", "-q", "-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder"),
        {},
        deadline=7200,
    ),
    Layer(
        "e2e",
        "the life and survival tests on three nodes",
        ("e2e/tests/test_life.py", "e2e/tests/test_survival.py", "-v", "--timeout", "2400"),
        {"CONVOY_E2E_NODES": "3"},
        deadline=10800,
    ),
)
NAMES = tuple(layer.name for layer in LAYERS)


def run(layer: Layer, environment: Mapping[str, str], *, commit: str, date: str) -> LayerResult:
    """Run a layer's tests and return their result. The tests print to the terminal.

    Raises ClusterError if pytest writes no report, because it could not start or exceeded the deadline.
    """
    report = report_file(layer)
    report.unlink(missing_ok=True)
    report.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", *layer.arguments, f"--junitxml={report}"]
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=files.CHECKOUT, env={**os.environ, **layer.environment, **environment}
    )
    status = _wait(process, layer)
    if not report.exists():
        raise ClusterError(f"the {layer.name} tests ended with status {status} and without a report")
    passed, skipped, failed = counts(report)
    return LayerResult(
        commit=commit,
        date=date,
        seconds=round(time.monotonic() - started),
        passed=passed,
        skipped=skipped,
        failed=failed,
    )


def report_file(layer: Layer) -> Path:
    """Return the path of pytest's report. Each release has its own, because two may be tested at a time."""
    return files.CHECKOUT / "build" / f"compat-{versions.release().kubernetes}-{layer.name}.xml"


def _wait(process: subprocess.Popen[bytes], layer: Layer) -> int:
    """Wait for the tests. If they exceed the deadline, end them so that their fixtures clean up."""
    try:
        return process.wait(layer.deadline)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise ClusterError(f"the {layer.name} tests took longer than {layer.deadline:g} s") from None
    except BaseException:
        # The terminal interrupts pytest too. Wait for it, because it may have a cluster to delete.
        process.wait(300)
        raise


def counts(report: Path) -> tuple[int, int, tuple[str, ...]]:
    """Return the number of passed and of skipped tests, and the failed tests, of a report in JUnit's format.

    A test fails if its fixtures fail. A test with a failure and an error counts once.
    """
    passed = skipped = 0
    failed: dict[str, None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        found = {child.tag for child in case}
        if found & {"failure", "error"}:
            failed[f"{case.get('classname')}::{case.get('name')}"] = None
        elif "skipped" in found:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, tuple(failed)
