"""Tests of the command line on a real cluster, as `convoy` and as `kubectl convoy`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import SMALL
from e2e.drive.jobs import Jobs

BIN = Path(sys.executable).parent


Run = Callable[..., str]


@pytest.fixture
def convoy(cluster: Cluster, jobs: Jobs) -> Run:
    """Return a function that runs `convoy` in the tests' namespace and returns its output."""
    path = f"{BIN}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "200", "PATH": path}

    def run(*arguments: str, program: tuple[str, ...] = (str(BIN / "convoy"),), code: int = 0) -> str:
        scope = [] if arguments[0] == "engine" else ["--namespace", jobs.namespace]
        done = subprocess.run(
            [*program, *arguments, *scope],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_a_job_is_watched_and_controlled_from_the_terminal(convoy: Run, cluster: Cluster, jobs: Jobs) -> None:
    # Without checkpoints, so that a restart loses steps and asks for confirmation.
    engine = {"name": "gpt", "params": {**SMALL, "steps": 100_000}}
    jobs.create("cli", engine=engine, checkpoint={"default": "None"})
    jobs.wait_step("cli", 1)
    assert "cli" in (line := convoy("get")) and "Running" in line and "2/2" in line
    assert "incarnation 1: 2 ranks run" in convoy("why", "cli")

    assert "add --yes" in convoy("restart", "cli", code=1)
    assert "restarts" in convoy("restart", "cli", "--yes")
    jobs.wait(
        lambda: jobs.status("cli")["incarnation"] == 2 and jobs.status("cli")["phase"] == "Running", 60, "2"
    )
    jobs.wait(
        lambda: "[2/1]" in jobs.log("cli-worker-1") or "[2/0]" in jobs.log("cli-worker-0"), 60, "output"
    )
    lines = convoy("logs", "cli", "--rank", "0", "--incarnation", "2").splitlines()
    assert lines and all(line.startswith("[2/0] ") for line in lines)
    assert "RestartRequested" in convoy("why", "cli")

    kubectl = (str(cluster.binaries / "kubectl"), "convoy")
    convoy("suspend", "cli", "--yes", program=kubectl)
    jobs.wait_phase("cli", "Suspended", 60)
    assert "its pods and their logs are deleted" in convoy("logs", "cli", code=1)
    assert "is already suspended" in convoy("suspend", "cli", code=1)
    convoy("resume", "cli")
    jobs.wait_phase("cli", "Running", 60)
    convoy("delete", "cli", "--yes")
    jobs.wait(lambda: jobs.get("cli") is None, 60, "deleted")
    assert "not found" in convoy("why", "cli", code=1)


def test_the_parameters_of_an_engine_are_shown(convoy: Run) -> None:
    assert "steps" in (text := convoy("engine", "gpt")) and "Number of optimizer steps." in text
    assert "did you mean 'gpt'?" in convoy("engine", "gtp", code=1)


def test_a_wrong_rank_is_rejected_with_the_valid_ranks(convoy: Run, jobs: Jobs) -> None:
    jobs.create("ranks", suspend=True)
    assert "its ranks are 0 to 1" in convoy("logs", "ranks", "--rank", "2", code=1)
