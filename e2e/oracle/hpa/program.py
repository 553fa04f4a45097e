"""Builds the Go program and runs it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import binaries, files
from e2e.cluster.errors import CommandError
from e2e.cluster.progress import Progress

MODULE = Path(__file__).with_name("program")
DEADLINE = 900.0
"""Seconds that the program may take for a batch of cases."""

Case = dict[str, Any]
Result = Any


def ensure(progress: Progress) -> Path:
    """Build the program if this version of it is missing, which takes minutes once. Return its path."""
    digest = hashlib.sha256()
    for path in sorted(MODULE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    final = files.cache_root() / "binaries" / f"hpa-oracle-{digest.hexdigest()[:10]}"
    if not final.exists():
        lock = final.with_name(".hpa-oracle.lock")
        with (
            files.locked(lock, deadline=3600, what="the oracle"),
            files.building(final) as temporary,
            progress.long("building the HorizontalPodAutoscaler from Go modules (minutes, once)"),
        ):
            binaries.build(MODULE, temporary / "hpa")
    return final / "hpa"


def results(program: Path, command: str, cases: Sequence[Case]) -> list[Result]:
    """Return the results of the real code for the cases, in order. Raise CommandError if it fails."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    # A bubble of virtual time runs one goroutine after the other, so more threads only cost time.
    environment = {**os.environ, "GOMAXPROCS": "1", "GOGC": "400"}
    done = subprocess.run(
        [program, command],
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError(f"hpa {command}", f"exit code {done.returncode}", done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]
