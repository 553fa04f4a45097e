"""Tests of `run_local`, and of programs without a launcher: they run the manifest and code of a cluster on
one machine.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.local import LocalError, run_local

from .conftest import WORKLOADS

SIZE = {
    "layers": 1,
    "width": 32,
    "heads": 2,
    "context": 32,
    "batch": 4,
    "data_megabytes": 0.3,
    "sample_bytes": 0,
}
Run = Callable[..., int]


def job(command: list[str] | None = None, params: dict[str, Any] | None = None, **spec: Any) -> TrainingJob:
    """Return a job of two workers that runs `command`, or the engine gpt if there is no command."""
    role: dict[str, Any] = {"name": "worker", "replicas": 2}
    if command:
        role["template"] = {"spec": {"containers": [{"image": "mine", "command": command}]}}
    else:
        spec["engine"] = {"name": "gpt", "params": params}
    return TrainingJob.model_validate({"metadata": {"name": "local"}, "spec": {"roles": [role], **spec}})


def gpt() -> Engine:
    from convoy_workloads.engines.gpt.params import Params

    command = ["python", "-m", "convoy_workloads.engines.gpt.engine"]
    spec = {"image": "mine", "command": command, "paramsSchema": Params.model_json_schema()}
    return Engine.model_validate({"metadata": {"name": "gpt"}, "spec": spec})


@pytest.fixture
def run(bare: Path) -> Run:
    """A function that calls `run_local` with the environment of the tests."""

    def start(what: TrainingJob, *args: Any, torch: bool = False, **kwargs: Any) -> int:
        environment = {**os.environ, "PYTHONPATH": str(WORKLOADS), "OMP_NUM_THREADS": "1"}
        return run_local(what, *args, environment=environment, **kwargs).exit_code

    return start


def script(folder: Path, source: str) -> list[str]:
    path = folder / "program.py"
    path.write_text(source)
    # The ranks start cold, because these programs need no torch.
    return ["bash", "-c", f"exec {sys.executable} {path}"]


@pytest.mark.timeout(120)
def test_gpt_runs_from_its_manifest_and_shows_its_loss(run: Run, tmp_path: Path) -> None:
    out = io.StringIO()
    params = {"steps": 20, "held_out_every": 1, **SIZE}
    assert run(job(params=params), gpt(), checkpoint_dir=tmp_path / "ck", out=out) == 0
    text = out.getvalue()
    assert "incarnation 1: 2 ranks" in text
    assert "step 20/20  loss " in text
    assert "held_out_loss" in text
    assert "loss by step" in text
    assert (tmp_path / "ck" / "gen-1-20" / "COMMIT.json").exists()


def test_a_failed_rank_restarts_the_job_within_its_budget(run: Run, tmp_path: Path) -> None:
    out = io.StringIO()
    source = (
        "import os\n"
        "raise SystemExit(os.environ['RANK'] == '1' and int(os.environ['CONVOY_INCARNATION']) < 3)\n"
    )
    assert run(job(script(tmp_path, source)), out=out) == 0
    assert "incarnation 3: 2 ranks" in out.getvalue()


def test_a_job_beyond_its_budget_fails_with_the_exit_code_of_the_rank(run: Run, tmp_path: Path) -> None:
    out = io.StringIO()
    what = job(script(tmp_path, "raise SystemExit(7)\n"), recovery={"maxRestarts": 1})
    assert run(what, out=out) == 7
    assert out.getvalue().count("incarnation") == 2
    assert "maxRestarts=1" in out.getvalue()


def test_a_repeated_identical_error_ends_the_job(run: Run, tmp_path: Path) -> None:
    out = io.StringIO()
    assert run(job(script(tmp_path, "raise SystemExit(7)\n")), out=out) == 7
    assert out.getvalue().count("incarnation") == 3
    assert "3 times in a row a rank ended with exit code 7 before the first step" in out.getvalue()


def test_a_command_runs_in_the_current_folder(run: Run, tmp_path: Path) -> None:
    out = io.StringIO()
    (tmp_path / "there.py").write_text("print('found', flush=True)\n")
    command = ["bash", "-c", f"exec {sys.executable} there.py"]
    assert run(job(command), out=out, folder=tmp_path) == 0
    assert sorted(out.getvalue().splitlines()) == ["[1/0] found", "[1/1] found", "incarnation 1: 2 ranks"]


def test_processes_that_outlive_a_run_keep_its_folder_locked(run: Run, tmp_path: Path) -> None:
    """If the run is killed by SIGKILL, its launchers remain. So they must hold the folder's lock too,
    through an inherited file.
    """
    found = f"exec ls -l /proc/$PPID/fd | grep -q ' {tmp_path}$'"
    assert run(job(["bash", "-c", found]), checkpoint_dir=tmp_path, out=io.StringIO()) == 0


@pytest.mark.parametrize(("source", "code"), [("raise SystemExit(10)\n", 10), ("raise SystemExit(20)\n", 20)])
def test_a_permanent_error_is_not_retried(run: Run, tmp_path: Path, source: str, code: int) -> None:
    out = io.StringIO()
    assert run(job(script(tmp_path, source)), out=out) == code
    assert out.getvalue().count("incarnation") == 1


def test_a_command_that_does_not_exist_ends_with_127(run: Run) -> None:
    assert run(job(["no-such-program"]), out=io.StringIO()) == 127


def test_ctrl_c_lets_the_ranks_leave(run: Run, tmp_path: Path) -> None:
    source = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        f"open(os.path.join({str(tmp_path)!r}, 'up' + os.environ['RANK']), 'w').close()\n"
        "while True: time.sleep(0.05)\n"
    )

    def interrupt() -> None:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and len(list(tmp_path.glob("up*"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    out = io.StringIO()
    assert run(job(script(tmp_path, source)), out=out) == 75
    watcher.join()
    assert "interrupted: the ranks have" in out.getvalue()


def test_a_manifest_without_a_command_names_the_field(run: Run) -> None:
    with pytest.raises(LocalError, match=r"spec\.roles\[worker\].*Engine 'gpt' is not given"):
        run(job(params={}))


def test_invalid_parameters_are_named_before_ranks_start(run: Run) -> None:
    with pytest.raises(LocalError, match=r"spec\.engine\.params.*unknown parameter 'stepz'"):
        run(job(params={"stepz": 3}), gpt())


@pytest.mark.timeout(120)
def test_a_local_program_needs_neither_launcher_nor_agent(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(WORKLOADS),
        "CONVOY_PARAMS": json.dumps({"steps": 6, **SIZE}),
        "CONVOY_CHECKPOINT_DIR": str(tmp_path / "ck"),
        "OMP_NUM_THREADS": "1",
    }

    def again() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "convoy_workloads.engines.gpt.engine"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert "step 1/6  loss 5." in again().stderr
    environment["CONVOY_PARAMS"] = json.dumps({"steps": 9, **SIZE})
    assert "continues after step 6 from gen-1-6" in again().stderr
    assert sorted(path.parent.name for path in tmp_path.glob("ck/*/COMMIT.json")) == ["gen-1-6", "gen-2-9"]


def test_the_result_is_printed_and_returned(bare: Path, tmp_path: Path) -> None:
    out = io.StringIO()
    source = "import convoy\nwith convoy.join() as job:\n    job.set_result({'accuracy': 0.5})\n"
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
    end = run_local(job(script(tmp_path, source)), out=out, environment=environment)
    assert (end.exit_code, end.result) == (0, {"accuracy": 0.5})
    assert 'result: {"accuracy":0.5}' in out.getvalue()
