"""The command `python -m convoy_workloads.bench.local_job RESULT PACKAGE RANKS PARAMS`, which runs an
engine as an arm of a bench.

The engine runs as under `convoy run`, but its module runs inside the stopwatch.
"""

from __future__ import annotations

import importlib
import json
import sys

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.local import run_local


def main() -> None:
    """Run the job and exit with its exit code."""
    result, package, ranks, params = sys.argv[1:]
    entry: EngineEntry = importlib.import_module(package).ENGINE
    made = engine(entry)
    *python, module = made.spec.command
    made.spec.command = [*python, "convoy_workloads.bench.stopwatch", result, module]
    job = TrainingJob.model_validate(
        {
            "metadata": {"name": "bench"},
            "spec": {
                "engine": {"name": entry.name, "params": json.loads(params)},
                "roles": [{"name": "worker", "replicas": 1, "processesPerReplica": int(ranks)}],
                "recovery": {"maxRestarts": 0},
            },
        }
    )
    raise SystemExit(run_local(job, made).exit_code)


if __name__ == "__main__":
    main()
