"""Runs an arm of a bench once."""

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
"""Number of threads for the kernels of each rank. It is the same in every arm."""


class TrialError(Exception):
    """Raised if an arm has failed or timed out. The message contains the end of the arm's output."""


@dataclass(frozen=True)
class Trial:
    """The result of one run of an arm."""

    seconds: float
    """Wall time in seconds from the start of the command until the command has ended."""
    processor_seconds: float
    """Processor time of the whole process tree, in seconds."""
    result: Mapping[str, Any]
    """The JSON object that the arm has written."""


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
                    process.terminate()  # SIGTERM ends the whole tree, including processes in other sessions.
                    process.wait()
        if code != 0 or not result.exists():
            why = f"ran longer than {deadline:.0f} s" if code is None else f"ended with exit code {code}"
            raise TrialError(f"{arm.name} {why}:\n{log.read_text(errors='replace')[-4000:]}")
        used = json.loads(usage.read_text())
        return Trial(used["seconds"], used["processor_seconds"], json.loads(result.read_text()))
