from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from convoy_workloads.launcher.zygote_client import ZygoteClient
from convoy_workloads.launcher.zygote_manager import same_interpreter


def test_paths_of_one_interpreter_are_recognised(tmp_path: Path) -> None:
    system, venv = tmp_path / "usr", tmp_path / "venv"
    for folder in (system, venv):
        folder.mkdir()
    (system / "python3.11").touch()
    (system / "python3.12").touch()
    for link in (system / "python3", venv / "python3"):
        link.symlink_to(system / "python3.11")
    (venv / "python").symlink_to("python3")
    same = same_interpreter
    assert same(f"{venv}/python", f"{venv}/python3")
    assert same(f"{system}/python3", f"{system}/python3.11")
    assert same(f"{venv}/python", f"{venv}/../venv/python")
    assert not same(f"{venv}/python3", f"{system}/python3")
    assert not same(f"{system}/python3.11", f"{system}/python3.12")


async def test_a_late_fork_is_killed() -> None:
    """The zygote reports a fork for a rank that was already started cold."""
    client = ZygoteClient("python", "entry", lambda *_: None)
    late = subprocess.Popen(["sleep", "1000"])  # noqa: ASYNC220 - a fork; there is nothing to wait for
    client._handle_event({"event": "started", "token": 1, "pid": late.pid})
    assert late.wait(10) == -signal.SIGKILL
