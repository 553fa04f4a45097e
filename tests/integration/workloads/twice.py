"""A program that runs an engine's ranks in one local job: first without a fault, then with a kill and a
restore.

Usage: `python twice.py FOLDER STEP RANK MODULE`, under a launcher that restarts failed ranks. Incarnation 1
runs undisturbed and ends with LEFT_ALONE. Incarnation 2 starts from step 0, and RANK is killed at STEP,
once there is a checkpoint. Incarnation 3 restores the checkpoint and succeeds. One zygote serves all three
incarnations, so torch is imported once.
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
    """Make this rank kill itself when it reports `step`. It waits until there is a checkpoint in
    `checkpoints`.
    """
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
