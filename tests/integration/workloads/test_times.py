"""Tests of the times of ranks' starts, steps and exits, as reported by the launcher and by the ranks."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Agent, Launcher

Launch = Callable[..., Launcher]

WITH_CONVOY = """
import glob, os, signal, time
import torch
import convoy

with convoy.join() as job:
    model = torch.nn.Linear(2, 2)
    job.report(job.restore(model=model).step, loss=1.0)  # no step of this incarnation
    time.sleep(0.1)
    for step in job.steps(1000):
        time.sleep(0.005)
        job.report(step, loss=1.0)
        job.checkpoint(step)
        if job.incarnation == 1 and step == 57:
            folder = os.environ.get("CONVOY_CHECKPOINT_DIR")
            while folder and not glob.glob(folder + "/**/COMMIT.json", recursive=True):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if job.incarnation == 2 and step == 90:
            break
"""

UNMODIFIED = """
import os, signal, time
import torch

weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(57):
    time.sleep(0.005)
    weight.sum().backward()
    optimizer.step()
if os.environ["CONVOY_INCARNATION"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("source", [WITH_CONVOY, UNMODIFIED], ids=["with convoy", "unmodified"])
async def test_the_last_step_of_a_rank_killed_between_messages_is_reported(
    agent: Agent, launch: Launch, tmp_path: Path, source: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(source)
    launch(torch=True)
    await agent.receives(lambda m: m["type"] == "hello")
    before = time.time() * 1000
    await agent.form(["python", str(path)], ranks=1)
    report = await agent.receives_exit(0)
    assert (report["signal"], report["step"]) == (signal.SIGKILL, 57)
    order = [report[name] for name in ("startedMs", "firstStepMs", "stepMs", "endedMs")]
    assert order == sorted(order)
    assert before - 1 <= order[0]
    assert order[-1] <= time.time() * 1000
    assert report["firstStepMs"] + 56 * 5 <= report["stepMs"] <= report["endedMs"]
    # The first progress message is sent at once, and the next one a second later. So the newest message was
    # sent before step 57.
    reported = await agent.receives(lambda m: m["type"] == "progress" and m["step"] > 0)
    assert reported["step"] < 57
    assert reported["timeMs"] >= reported["firstStepMs"] == report["firstStepMs"]


async def test_the_first_step_of_an_incarnation_and_save_times_are_reported(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(WITH_CONVOY)
    launcher = launch(
        torch=True,
        CONVOY_PARAMS=json.dumps({}),
        CONVOY_CHECKPOINT_DIR=str(tmp_path / "checkpoints"),
        CONVOY_CHECKPOINT_SECONDS="0.02",
    )
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["python", str(path)], ranks=1)
    killed = await agent.receives_exit(0)
    assert killed["checkpointMs"] > 0
    assert killed["checkpointMs"] < killed["endedMs"] - killed["startedMs"]
    agent.received.clear()
    await agent.form(["python", str(path)], incarnation=2, ranks=1)
    first = await agent.receives(lambda m: m["type"] == "progress" and "firstStepMs" in m)
    restored = re.search(r"\[2/0\] convoy: continues after step (\d+)", launcher.log)
    assert restored
    assert first["step"] > int(restored[1])
    assert all(
        "firstStepMs" in m for m in agent.received if m["type"] == "progress" and m["step"] > first["step"]
    )
    assert not any("firstStepMs" in m for m in agent.received if m.get("step") == int(restored[1]))
    assert first["timeMs"] >= first["firstStepMs"] > killed["endedMs"]
    done = await agent.receives_exit(0, 2)
    assert (done["exitCode"], done["step"]) == (0, 90)
    assert done["firstStepMs"] == first["firstStepMs"]
    last = [m for m in agent.received if m["type"] == "progress"][-1]
    assert (last["step"], last["timeMs"]) == (90, done["stepMs"])
    assert last["checkpointMs"] == done["checkpointMs"] > 0


async def test_a_rank_that_never_ran_reports_only_its_end_time(agent: Agent, launch: Launch) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["no-such-program"], ranks=1)
    report = await agent.receives_exit(0)
    assert (report["startedMs"], report["step"], report["firstStepMs"]) == (0, 0, 0)
    assert report["endedMs"] > 0
