"""Tests of the replacement of ranks by a later incarnation, and of the immediate shutdown of a launcher."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Agent, Launcher, until

Launch = Callable[..., Launcher]

BLOCKED = """
import time
import torch
import convoy

with convoy.join() as job:
    if job.incarnation == 1 and job.rank == 1:
        print("stays away", flush=True)
        while True:  # as a rank behind a link that is cut: it never comes, and no connection breaks
            time.sleep(0.1)
    if job.incarnation == 1:
        print("enters", flush=True)
    torch.distributed.all_reduce(torch.ones(1))
"""
"""A program in which rank 0 waits for rank 1 in a collective, where Python handles no signal.

gloo would end the wait only after minutes.
"""


async def blocked(agent: Agent, launch: Launch, tmp_path: Path) -> tuple[Launcher, list[str]]:
    """Return a launcher whose rank 0 is in a collective that never ends, and the command of its ranks."""
    path = tmp_path / "blocked.py"
    path.write_text(BLOCKED)
    launcher = launch(torch=True)
    await agent.receives(lambda m: m["type"] == "hello")
    command = ["python", str(path)]
    await agent.form(command)
    await until(lambda: "[1/0] enters" in launcher.log and "[1/1] stays away" in launcher.log)
    return launcher, command


async def test_ranks_in_a_collective_are_replaced_without_delay(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    _, command = await blocked(agent, launch, tmp_path)
    started_at = time.monotonic()
    await agent.form(command, incarnation=2)
    for rank in (0, 1):
        await agent.receives(
            lambda m, rank=rank: (
                m["type"] == "rank" and (m["incarnation"], m["rank"], m["state"]) == (2, rank, "RUNNING")
            )
        )
    seconds = time.monotonic() - started_at
    print(f"\nfrom the assignment to the ranks' start: {seconds:.3f} s")
    assert [(await agent.receives_exit(rank))["signal"] for rank in (0, 1)] == [signal.SIGKILL] * 2
    assert [(await agent.receives_exit(rank, 2))["exitCode"] for rank in (0, 1)] == [0, 0]
    assert seconds < 2


SAVES = """
import os, signal, sys, threading, time
name, stopping = sys.argv[1], threading.Event()
if name == "sigwait":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=lambda: signal.sigwait({signal.SIGTERM}) and stopping.set()).start()
else:
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
print("up", name, flush=True)
while not stopping.wait(0.01): pass
print("saving", name, flush=True)
with open(f"saved-{name}", "w") as file:
    while not os.path.exists("go"): time.sleep(0.01)
    file.write("whole")
sys.exit(75)
"""
"""A program that handles SIGTERM: it saves its state as soon as the test creates the file `go`."""

JOINED = """
import sys, time
import convoy
with convoy.join() as job:
    print("up", sys.argv[1], flush=True)
    while True: time.sleep(0.01)
"""
SAVERS = {
    "own": "exec $PYTHON saves.py own",
    "shell": "$PYTHON saves.py shell; echo",
    "setsid": "setsid $PYTHON saves.py setsid; echo",
    "sigwait": "exec $PYTHON saves.py sigwait",
}
OTHERS = {
    "plain": "echo up plain; exec sleep 1000",
    "ignores": "trap '' TERM; echo up ignores; sleep 1000; echo",
    "joined": "WORLD_SIZE=1 RANK=0 exec $PYTHON joined.py joined",
}


@pytest.fixture
def scripts(tmp_path: Path) -> list[str]:
    """Return a command that each rank runs. The rank's number selects the script: first those in `SAVERS`,
    then those in `OTHERS`.
    """
    (tmp_path / "saves.py").write_text(SAVES)
    (tmp_path / "joined.py").write_text(JOINED)
    for number, script in enumerate((SAVERS | OTHERS).values()):
        (tmp_path / str(number)).write_text(f"export PYTHON='{sys.executable} -S'\n{script}\n")
    return ["sh", "-c", 'exec sh "$RANK"']


async def test_only_replaced_ranks_that_save_on_sigterm_get_a_grace_period(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    names = list(SAVERS | OTHERS)
    await agent.form(scripts, ranks=len(names))
    await until(lambda: all(f"] up {name}\n" in launcher.log for name in names))
    await agent.form(["true"], ranks=len(names), incarnation=2)
    for rank in range(len(SAVERS), len(names)):
        assert (await agent.receives_exit(rank))["signal"] == signal.SIGKILL
    await until(lambda: all(f"] saving {name}\n" in launcher.log for name in SAVERS))
    assert not [m for m in agent.received if m["type"] == "rank" and m["incarnation"] == 2]
    (tmp_path / "go").touch()
    assert [(await agent.receives_exit(rank))["exitCode"] for rank in range(len(SAVERS))] == [75] * len(
        SAVERS
    )
    assert "incarnation 1 is being replaced: ranks that handle SIGTERM get 25 s" in launcher.log
    assert " to save their state: 0, 1, 2, 3\n" in launcher.log
    assert {(tmp_path / f"saved-{name}").read_text() for name in SAVERS} == {"whole"}
    assert (await agent.receives_exit(0, 2))["exitCode"] == 0


async def test_a_warm_rank_saves_within_the_grace_period_of_the_pod(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="0.5")
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["python", "saves.py", "warm"], ranks=1)
    await until(lambda: "] up warm\n" in launcher.log)
    await agent.form(["true"], ranks=1, incarnation=2)
    assert (await agent.receives_exit(0))["signal"] == signal.SIGKILL
    assert "] saving warm\n" in launcher.log
    assert (await agent.receives_exit(0, 2))["exitCode"] == 0


@pytest.mark.parametrize("terminating", [False, True], ids=["alone", "after SIGTERM"])
async def test_an_immediate_shutdown_has_no_grace_period(
    agent: Agent, launch: Launch, tmp_path: Path, terminating: bool
) -> None:
    launcher, _ = await blocked(agent, launch, tmp_path)
    if terminating:
        launcher.signal(signal.SIGTERM)
        await until(lambda: "SIGTERM: the ranks get 25 s to save their state" in launcher.log)
    started_at = time.monotonic()
    agent.send(type="shutdown", exitCode=75, reason="cut off", immediate=True)
    assert await launcher.ends() == 75
    assert time.monotonic() - started_at < 3
    assert [(await agent.receives_exit(rank))["signal"] for rank in (0, 1)] == [signal.SIGKILL] * 2
    assert "ends the launcher with exit code 75: cut off" in launcher.log


async def test_an_immediate_shutdown_ends_ranks_that_are_starting(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    """The launcher is shut down while its zygote imports torch. A rank that the zygote forks afterwards
    must be killed.
    """
    path = tmp_path / "program.py"
    path.write_text("import time\nprint('runs', flush=True)\nwhile True: time.sleep(0.1)\n")
    launcher = launch(torch=True)
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["python", str(path)])
    await agent.receives(lambda m: m["type"] == "rank" and m["state"] == "STARTING")
    agent.send(type="shutdown", exitCode=75, reason="cut off", immediate=True)
    assert await launcher.ends() == 75
    for rank in (0, 1):
        assert (await agent.receives_exit(rank))["exitCode"] in (137, 143)
