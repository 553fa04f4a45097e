"""Recorded cases with the results of Kubernetes, so that the unit tests need no Go."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from e2e.cluster import files
from e2e.oracle.hpa.comparison import random_cases
from e2e.oracle.hpa.program import Case, Result, results
from e2e.oracle.hpa.suites import Suite

FOLDER = files.CHECKOUT / "tests" / "data" / "autoscale"
COUNTS = {"replicas": 3000, "controller": 500}
"""Number of recorded cases by suite."""
MAX_BYTES = {"replicas": 3000, "controller": 12_000}
"""Maximum size of a recorded case as JSON, by suite."""
_BATCH = 100_000
"""Batch of random cases that no comparison uses."""


def record(suite: Suite, program: Path) -> Path:
    """Write recorded cases of a suite. Return the file's path."""
    drawn = random_cases(suite, _BATCH, 2 * COUNTS[suite.name])
    cases = [case for case in drawn if len(json.dumps(case)) <= MAX_BYTES[suite.name]][: COUNTS[suite.name]]
    theirs = results(program, suite.name, cases)
    lines = [
        json.dumps([case, suite.comparable(case, result)], separators=(",", ":"))
        for case, result in zip(cases, theirs, strict=True)
    ]
    path = recorded_file(suite)
    files.write(path, lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    return path


def recorded_file(suite: Suite) -> Path:
    """Return the path of a suite's recorded cases."""
    return FOLDER / f"{suite.name}.jsonl.xz"


def recorded(suite: Suite) -> list[tuple[Case, Result]]:
    """Return the recorded cases of a suite, with the results of Kubernetes in Convoy's terms."""
    lines = lzma.decompress(recorded_file(suite).read_bytes()).decode().splitlines()
    return [(case, result) for case, result in map(json.loads, lines)]
