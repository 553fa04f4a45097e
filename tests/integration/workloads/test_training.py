"""Tests that ranks train through kills, replacement, preemption and corrupt checkpoints, and get the same
bits.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from .conftest import ROOT, Agent, Launcher, Message, until

Launch = Callable[..., Launcher]

PROGRAM = """
import os, signal, sys, time
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import convoy

with convoy.join() as job:
    params = job.params
    torch.manual_seed(3)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())])
    if job.world > 1:
        model = DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss_of(step):
        data = torch.Generator().manual_seed(1000 * step + job.rank)
        noise = torch.rand(8, 32)  # from the default generator: its state must survive a restore
        return (model(torch.randn(8, 32, generator=data)) - noise).square().mean()

    job.restore(model=model, optimizer=optimizer,
                warm=(lambda: loss_of(0).backward()) if params.get("warm", True) else None)
    for step in job.steps(params["steps"]):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        job.report(step, loss=loss.item(), samples=8 * job.world)
        job.checkpoint(step)
        if job.incarnation == 1 and step == params.get("signal_at") and job.rank == job.world - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if job.incarnation == 1 and step == params.get("kill_at") and job.rank == job.world - 1:
            while not os.path.exists(params["wait_for"]): time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(params.get("pause", 0))
    if job.rank == 0:
        torch.save([p.detach() for p in model.parameters()], params["out"])
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return ["python", str(path)]


def environment(tmp_path: Path, seconds: float = 3600, **params: Any) -> dict[str, str]:
    """Return the environment variables of a job with these parameters and its checkpoints in `tmp_path`."""
    return {
        "CONVOY_PARAMS": json.dumps({"out": str(tmp_path / "out.pt"), **params}),
        "CONVOY_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "CONVOY_CHECKPOINT_SECONDS": str(seconds),
    }


def committed(tmp_path: Path) -> list[str]:
    """Return the names of the generations with a COMMIT record."""
    return sorted(path.parent.name for path in (tmp_path / "checkpoints").glob("*/COMMIT.json"))


async def connected(agent: Agent) -> None:
    await agent.receives(lambda m: m["type"] == "hello" and m["role"] == "launcher")


async def run_to_end(
    agent: Agent,
    launch: Launch,
    program: list[str],
    tmp_path: Path,
    ranks: int,
    incarnations: int,
    **params: Any,
) -> list[torch.Tensor]:
    """Run the job for `incarnations` incarnations. Return the final weights of each rank.

    All incarnations except the last one must end with exit code 75.
    """
    launcher = launch(torch=True, **environment(tmp_path, **params))
    await connected(agent)
    for incarnation in range(1, incarnations + 1):
        await agent.form(program, incarnation, ranks)
        for rank in range(ranks):
            report = await agent.receives_exit(rank, incarnation)
            assert report["exitCode"] == (0 if incarnation == incarnations else 75), report["stderr"]
    agent.send(type="shutdown", exitCode=0)
    assert await launcher.ends() == 0
    weights: list[torch.Tensor] = torch.load(tmp_path / "out.pt")
    return weights


class Runner:
    """Runs the same job several times, each time in its own folder, so that the results can be compared."""

    def __init__(self, agent: Agent, launch: Launch, program: list[str], tmp_path: Path) -> None:
        self._fixtures = agent, launch, program
        self._tmp_path = tmp_path

    async def weights(self, name: str, incarnations: int, **params: Any) -> list[torch.Tensor]:
        agent, launch, program = self._fixtures
        folder = self._tmp_path / name
        folder.mkdir()
        agent.clear_messages()
        return await run_to_end(agent, launch, program, folder, 3, incarnations, steps=12, **params)


@pytest.fixture
def runner(agent: Agent, launch: Launch, program: list[str], tmp_path: Path) -> Runner:
    return Runner(agent, launch, program, tmp_path)


def same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(one, other, strict=True))


@pytest.mark.timeout(180)
async def test_three_ranks_interrupted_and_restored_end_with_the_same_bits(runner: Runner) -> None:
    whole = await runner.weights("whole", incarnations=1)
    broken = await runner.weights("broken", incarnations=2, signal_at=5)
    assert same_bits(whole, broken)


@pytest.mark.timeout(180)
async def test_without_warmup_passes_the_bits_differ(runner: Runner) -> None:
    """This negative control shows that the warm-up passes are necessary."""
    whole = await runner.weights("whole", incarnations=1, warm=False)
    broken = await runner.weights("broken", incarnations=2, signal_at=5, warm=False)
    assert not same_bits(whole, broken)


async def test_terminated_ranks_stop_at_the_same_step_and_commit_that_step(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    launcher = launch(torch=True, **environment(tmp_path, steps=100_000, pause=0.01))
    await connected(agent)
    await agent.form(program)
    await agent.receives_step(3)
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == 75
    assert [(await agent.receives_exit(rank))["exitCode"] for rank in (0, 1)] == [75, 75]
    stopped = re.search(r"asked to stop: saves the state after step (\d+)", launcher.log)
    assert stopped is not None
    assert committed(tmp_path) == [f"gen-1-{stopped[1]}"]
    record = json.loads((tmp_path / "checkpoints" / f"gen-1-{stopped[1]}" / "COMMIT.json").read_text())
    assert (record["worldSize"], len(record["files"])) == (2, 2), "both ranks have written their part of it"


async def test_a_killed_rank_is_replaced_in_place_and_training_continues(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    params = {"steps": 30, "kill_at": 20, "wait_for": str(go)}
    launcher = launch(torch=True, **environment(tmp_path, seconds=0.0, **params))
    await connected(agent)
    await agent.form(program)
    await until(lambda: len(committed(tmp_path)) > 0)
    go.touch()
    report = await agent.receives_exit(1)
    assert (report["signal"], report["oom"]) == (signal.SIGKILL, False)
    assert (await agent.receives_exit(0))["exitCode"] == 76
    saved = committed(tmp_path)
    began = time.monotonic()
    await agent.form(program, incarnation=2)
    await agent.receives(lambda m: m["type"] == "progress" and m["from"] == 0 and m["step"] >= 30)
    print(f"\nreplaced in place and done after {time.monotonic() - began:.2f} s")
    assert [(await agent.receives_exit(rank, 2))["exitCode"] for rank in (0, 1)] == [0, 0]
    restored = re.search(
        r"\[2/0\] convoy: continues after step (\d+) from (gen-1-\d+), bit-exact", launcher.log
    )
    assert restored is not None, launcher.log
    assert restored[2] in saved
    assert "gen-2-30" in committed(tmp_path)
    assert len(committed(tmp_path)) <= 2


async def test_a_corrupt_checkpoint_is_skipped_with_a_warning(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    launcher = launch(torch=True, **environment(tmp_path, steps=8, seconds=0.0))
    await connected(agent)
    await agent.form(program)
    for rank in (0, 1):
        await agent.receives_exit(rank)
    older, newest = sorted(committed(tmp_path), key=lambda name: int(name.rsplit("-", 1)[1]))
    victim = next((tmp_path / "checkpoints" / newest).glob("*.distcp"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    await agent.form(program, incarnation=2)
    assert [(await agent.receives_exit(rank, 2))["exitCode"] for rank in (0, 1)] == [0, 0]
    assert f"CHECKPOINT {newest} IS CORRUPT" in launcher.log
    assert f"from {older}, bit-exact" in launcher.log


async def test_ranks_exit_with_20_and_delete_nothing_without_a_readable_checkpoint(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    launcher = launch(torch=True, **environment(tmp_path, steps=8, seconds=0.0))
    await connected(agent)
    await agent.form(program)
    for rank in (0, 1):
        await agent.receives_exit(rank)
    saved = committed(tmp_path)
    for name in saved:
        (tmp_path / "checkpoints" / name / ".metadata").write_bytes(b"")
    await agent.form(program, incarnation=2)
    assert [(await agent.receives_exit(rank, 2))["exitCode"] for rank in (0, 1)] == [20, 20]
    assert f"no checkpoint in {tmp_path / 'checkpoints'} can be read" in launcher.log
    assert committed(tmp_path) == saved


async def test_a_rank_rejected_by_the_agent_exits(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    launch(torch=True, **environment(tmp_path, steps=100_000, pause=0.01))
    await connected(agent)
    await agent.form(program)
    await agent.receives_step(3, rank=1)
    agent.send_to_rank(1, type="refused", incarnation=1, step=3, seen=2)
    assert (await agent.receives_exit(1))["exitCode"] == 76


async def test_training_continues_across_an_agent_restart(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    launch(torch=True, **environment(tmp_path, steps=100_000, pause=0.01))
    await connected(agent)
    await agent.form(program)
    before = await agent.receives_step(3)
    await agent.disconnect()
    agent.clear_messages()
    await agent.listen()
    for rank in (0, 1):
        await agent.receives_step(before["step"] + 5, rank)


async def test_invalid_parameters_exit_with_10(agent: Agent, launch: Launch, tmp_path: Path) -> None:
    launch(torch=True, **environment(tmp_path, layers=0))
    await connected(agent)
    await agent.form(["python", "-m", "convoy_workloads.engines.gpt.engine"], ranks=1)
    report = await agent.receives_exit(0)
    assert report["exitCode"] == 10
    assert "layers" in report["stderr"]


@pytest.mark.timeout(120)
async def test_gpt_trains_on_two_ranks_and_its_held_out_loss_falls(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    size = {"layers": 1, "width": 32, "heads": 2, "context": 32, "batch": 8, "data_megabytes": 0.5}
    params = {
        "steps": 60,
        "warmup": 5,
        "held_out_every": 1,
        "learning_rate": 1e-2,
        "sample_bytes": 20,
        **size,
    }
    environment_ = {**environment(tmp_path), "CONVOY_PARAMS": json.dumps(params)}
    launcher = launch(torch=True, **environment_)
    await connected(agent)
    await agent.form(["python", "-m", "convoy_workloads.engines.gpt.engine"])
    first = await agent.receives(lambda m: m["type"] == "progress" and m["from"] == 0 and "metrics" in m)
    last = await agent.receives_step(60)
    assert [(await agent.receives_exit(rank))["exitCode"] for rank in (0, 1)] == [0, 0]
    assert last["totalSteps"] == 60
    before, after = first["metrics"]["held_out_loss"], last["metrics"]["held_out_loss"]
    assert after["step"] == 60
    assert after["value"] < min(4.0, before["value"]), "a uniform guess over bytes has 5.55"
    assert "[1/0] --- the model writes ---" in launcher.log
    assert committed(tmp_path) == ["gen-1-60"]


@pytest.mark.parametrize("command", [["python", "ddp.py"], ["torchrun", "--nproc-per-node=2", "ddp.py"]])
async def test_an_unmodified_torchrun_script_trains_and_shows_its_steps(
    agent: Agent, launch: Launch, tmp_path: Path, command: list[str]
) -> None:
    source = (ROOT / "examples" / "ddp.py").read_text()
    assert "convoy" not in source.replace("Convoy", "").lower()
    (tmp_path / "ddp.py").write_text(source)
    launcher = launch(torch=True, STEPS="200", SNAPSHOT=str(tmp_path / "snapshot.pt"))
    await connected(agent)
    await agent.form(command)
    assert [(await agent.receives_exit(rank))["exitCode"] for rank in (0, 1)] == [0, 0]
    await agent.receives_step(200, rank=0)
    losses = [float(loss) for loss in re.findall(r"\[1/0\] step \d+ loss ([\d.]+)", launcher.log)]
    assert len(losses) == 4
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.timeout(120)
async def test_a_pipeline_reports_its_layout_and_its_own_work(agent: Agent, launch: Launch) -> None:
    """Two replicas of two stages. The last stage has twice the work, and the waits for it do not count."""
    program = ROOT / "e2e" / "drive" / "programs" / "pipeline.py"
    launch(torch=True, PIPELINE_STAGES="2", PIPELINE_SECONDS="0.05")
    await connected(agent)
    await agent.form(["python", str(program)], ranks=4)
    found: dict[int, Message] = {}
    for rank in range(4):

        def whole(message: Message, rank: int = rank) -> bool:
            """Return True for the rank's first window of at least four steps."""
            return message["type"] == "telemetry" and message["from"] == rank and _steps(message) >= 4

        message = await agent.receives(whole, 60)
        found[rank] = message["windows"][-1]
    assert {rank: (one["stage"], one["replica"]) for rank, one in found.items()} == {
        0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1)
    }  # fmt: skip
    assert all(one["exchanges"] for one in found.values())
    for first, last in ((found[0], found[1]), (found[2], found[3])):
        assert first["compute"] < last["compute"] and first["wait"] > last["wait"]


def _steps(message: Message) -> int:
    last = message["windows"][-1]
    return int(last["last"] - last["first"] + 1)


@pytest.mark.timeout(120)
async def test_ranks_that_destroy_their_group_before_their_module_end(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    """Several runs are needed: without `keep_groups`, torch deadlocks only in about one of eight runs."""
    (tmp_path / "ddp.py").write_text((ROOT / "examples" / "ddp.py").read_text())
    launch(torch=True, STEPS="20", SNAPSHOT=str(tmp_path / "none.pt"))
    await connected(agent)
    for incarnation in range(1, 17):
        await agent.form(["python", "ddp.py"], incarnation)
        assert [(await agent.receives_exit(rank, incarnation))["exitCode"] for rank in (0, 1)] == [0, 0]


async def test_times_of_warm_and_cold_starts_are_printed(
    agent: Agent, launch: Launch, program: list[str], tmp_path: Path
) -> None:
    """Prints the times of three starts. Asserts only that the second start is warm and the third one cold."""
    launcher = launch(torch=True, **environment(tmp_path, steps=1))
    await connected(agent)
    seconds = {}
    cold = ["bash", "-c", f"exec {program[0]} {program[1]}"]
    for incarnation, (name, command) in enumerate(
        {"first": program, "warm": program, "cold": cold}.items(), 1
    ):
        for path in (tmp_path / "checkpoints").glob("*/COMMIT.json"):
            path.unlink()
        began = time.monotonic()
        await agent.form(command, incarnation)
        for rank in (0, 1):
            assert (await agent.receives_exit(rank, incarnation))["exitCode"] == 0
        seconds[name] = time.monotonic() - began
    print(f"\none step of two ranks, from assignment to exit: {seconds}")
    assert "incarnation 2: 2 ranks (2 warm)" in launcher.log
    assert "incarnation 3: 2 ranks (0 warm)" in launcher.log
