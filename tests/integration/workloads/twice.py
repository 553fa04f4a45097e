"""An engine's ranks, run twice in one local job: left alone, then killed at a step and restored.

`python twice.py FOLDER STEP RANK MODULE`, under a launcher that restarts what fails. The first incarnation is
left alone and ends with LEFT_ALONE. The second starts anew, and RANK is killed at STEP, once there is
a checkpoint. The third restores that and ends well. One zygote serves all three, so torch is imported once.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.job import Job

LEFT_ALONE = 3
COMMIT_SECONDS = 20.0


def main() -> None:
    folder, step, rank, module = sys.argv[1:]
    incarnation = int(os.environ["CONVOY_INCARNATION"])
    checkpoints = Path(folder) / ("alone" if incarnation == 1 else "killed")
    checkpoints.mkdir(exist_ok=True)
    os.environ["CONVOY_CHECKPOINT_DIR"] = str(checkpoints)
    os.environ["CONVOY_CHECKPOINT_SECONDS"] = "0"
    if incarnation == 2 and os.environ["RANK"] == rank:
        kill_at(int(step), checkpoints)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    if incarnation == 1:
        raise SystemExit(LEFT_ALONE)


def kill_at(step: int, checkpoints: Path) -> None:
    """Have this rank killed where it reports `step`."""
    report = Job.report

    def killed(self: Job[Any], reached: int, *args: Any, **kwargs: Any) -> None:
        if reached >= step:
            deadline = time.monotonic() + COMMIT_SECONDS
            while not list(checkpoints.glob("*/COMMIT.json")) and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        report(self, reached, *args, **kwargs)

    Job.report = killed  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
