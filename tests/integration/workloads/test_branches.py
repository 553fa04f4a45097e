"""A commit that comes late, from an incarnation that was replaced, on the volume that all share."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from .conftest import Agent, Launcher, until

Launch = Callable[..., Launcher]

PROGRAM = """
import os, signal, time
import torch
import convoy

with convoy.join() as job:
    model = torch.nn.Linear(2, 2)
    job.restore(model=model)
    for step in job.steps(100000):
        time.sleep(0.01)
        job.report(step)
        job.checkpoint(step)
"""


def committed(folder: Path) -> dict[str, dict[str, object]]:
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/COMMIT.json")}


def late_commit(folder: Path, name: str) -> str:
    """What the incarnation behind `name` commits 50 steps later, when it has long been replaced."""
    record = json.loads((folder / name / "COMMIT.json").read_text())
    parent = [record["incarnation"], record["step"]]
    late = {**record, "step": record["step"] + 50, "parent": parent}
    path = folder / f"gen-{late['incarnation']}-{late['step']}"
    shutil.copytree(folder / name, path)
    (path / "COMMIT.json").write_text(json.dumps(late))
    return path.name


async def test_a_late_commit_is_no_state_of_the_run(agent: Agent, launch: Launch, tmp_path: Path) -> None:
    path, folder = tmp_path / "train.py", tmp_path / "checkpoints"
    path.write_text(PROGRAM)
    command = ["python", str(path)]
    environment = {"CONVOY_CHECKPOINT_DIR": str(folder), "CONVOY_CHECKPOINT_SECONDS": "3600"}

    async def form(incarnation: int, launcher: Launcher) -> str:
        """What the incarnation says it continues from."""
        await agent.form(command, incarnation)
        await until(lambda: f"[{incarnation}/0] step" in launcher.log)
        line = next(
            (line for line in launcher.log.splitlines() if f"[{incarnation}/0] convoy: continues" in line), ""
        )
        return line.partition(" from ")[2].partition(",")[0]

    # Incarnation 1 leaves one checkpoint: its last.
    launcher = launch(torch=True, **environment)
    await agent.hears(lambda m: m["type"] == "hello")
    assert await form(1, launcher) == ""
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == 75
    [name] = committed(folder)
    # Incarnation 2 goes on from it, and is gone before its own first commit.
    agent.forget()
    launcher = launch(torch=True, **environment)
    await agent.hears(lambda m: m["type"] == "hello")
    assert await form(2, launcher) == name
    late = late_commit(folder, name)
    assert await form(3, launcher) == name
    assert f"{late}: COMMITTED BY AN INCARNATION THAT HAD BEEN REPLACED" in launcher.log
    # The negative control: without what the incarnations said of their beginnings, the late one looks newest.
    for branch in folder.glob("branch-*.json"):
        branch.unlink()
    assert await form(4, launcher) == late
