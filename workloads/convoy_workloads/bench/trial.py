"""One run of an arm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.bench.arms import Arm

DEADLINE_SECONDS = 900.0
THREADS = "1"
"""Threads of each rank's kernels, the same in every arm."""


class TrialError(Exception):
    """An arm has failed or timed out. The message has the end of its output."""


@dataclass(frozen=True)
class Trial:
    """A finished run."""

    seconds: float
    """Wall time of the whole process tree, from its first process to the command's end."""
    processor_seconds: float
    """Processor time of the whole process tree."""
    result: Mapping[str, Any]
    """The JSON object that the arm wrote."""


def run(arm: Arm, deadline: float = DEADLINE_SECONDS) -> Trial:
    """Run an arm once in a process tree of its own.

    Raises TrialError if the arm fails or takes longer than `deadline` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-bench-") as name:
        folder = Path(name)
        result, usage, log = folder / "result.json", folder / "usage.json", folder / "log"
        command = [sys.executable, "-m", "convoy_workloads.bench.tree", str(usage), *arm.command(result)]
        environment = {**os.environ, "OMP_NUM_THREADS": THREADS, "GLOO_SOCKET_IFNAME": "lo"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(deadline)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    process.terminate()  # ends the whole tree, including other sessions
                    process.wait()
        if code != 0 or not result.exists():
            why = f"ran longer than {deadline:.0f} s" if code is None else f"ended with exit code {code}"
            raise TrialError(f"{arm.name} {why}:\n{log.read_text(errors='replace')[-4000:]}")
        used = json.loads(usage.read_text())
        return Trial(used["seconds"], used["processor_seconds"], json.loads(result.read_text()))
