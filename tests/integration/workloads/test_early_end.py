"""Tests of the rank that the operator blames if one of several real ranks ends early or hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import RankView
from convoy_crds.trainingjob_status import LastRestart

from .conftest import Agent, Launcher, Message

Launch = Callable[..., Launcher]

PROGRAM = """
import os, threading, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)

def load(step):
    if step == 5 and rank == 1:
        END

for step in range(1, 9):
    load(step)
    weight.sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
"""


def view(report: Message) -> RankView:
    """Return the report in the form in which agent and hub pass it to the operator."""
    return RankView(
        report["rank"],
        report["state"],
        exit_code=report["exitCode"],
        signal=report["signal"],
        hung=report["hung"],
        stderr=report["stderr"],
        step=report["step"] or None,
        time=report["stepMs"] / 1000,
        ended=report["endedMs"] / 1000,
        finished=report["finishedMs"] / 1000,
    )


def blamed(reports: list[Message]) -> LastRestart:
    roles = [{"name": "worker", "replicas": 1, "processesPerReplica": 2}]
    cluster = ToyCluster(make_job(roles=roles), make_engine()).settle()
    for one in map(view, reports):
        facts = {name: getattr(one, name) for name in RankView.__slots__ if name not in ("rank", "exit_code")}
        cluster.rank(one.rank, exit_code=one.exit_code, **facts)
    for _ in range(3):
        cluster.step()
        cluster.wait(3)
    last = cluster.job.status.restarts.last
    assert last is not None
    return last


LIVES = [
    ("os._exit(0)", "EndedEarly", "exited with code 0 after step 4 while other ranks went on"),
    ("time.sleep(600)", "RankHung", "program.py:13 in load"),
    ("threading.Thread(target=time.sleep, args=(600,)).start()", "RankNotEnding", "made its last step 8"),
]


async def test_the_rank_that_ends_early_is_the_cause_and_not_its_peer(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    """One pod runs three incarnations. In each of them rank 1 ends or hangs first, and must be blamed."""
    launch(torch=True)
    await agent.receives(lambda message: message["type"] == "hello")
    path = tmp_path / "program.py"
    for incarnation, (end, reason, words) in enumerate(LIVES, 1):
        path.write_text(PROGRAM.replace("END", end))
        await agent.form(["python", str(path)], incarnation, hangSeconds=2)
        last = blamed([await agent.receives_exit(rank, incarnation) for rank in (0, 1)])
        assert (last.reason, last.rank) == (reason, 1), last.message
        assert words in last.message
