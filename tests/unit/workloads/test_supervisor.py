from __future__ import annotations

import asyncio
import time

import pytest

from convoy_workloads.launcher import stopping, supervisor
from convoy_workloads.launcher.rank import RUNNING, Rank
from convoy_workloads.launcher.rank_env import parse_assignment
from convoy_workloads.launcher.supervisor import Supervisor
from convoy_workloads.runtime.heartbeat import HeartbeatWriter

ASSIGNMENT = {
    "incarnation": 2,
    "slot": 0,
    "rankOffset": 0,
    "processes": 2,
    "worldSize": 2,
    "masterAddr": "localhost",
    "masterPort": 1,
    "hangSeconds": 1,
    "command": ["true"],
}


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ABORT_SECONDS", "SHUTDOWN_SECONDS"):
        monkeypatch.setattr(supervisor, name, 0.05)
    monkeypatch.setattr(stopping, "KILL_SECONDS", 0.05)
    monkeypatch.setenv("CONVOY_GRACE_SECONDS", "0.05")


class Stuck(Rank):
    """A rank in uninterruptible sleep, which no signal can end."""

    def __init__(self, beat: str = "") -> None:
        super().__init__(1, 3, beat)
        self.pid = 4321
        self.state = RUNNING

    def _signal(self, number: int, group: bool) -> None:
        pass


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("cause", ["shutdown", "immediate", "sigterm", "assignment"])
async def test_a_rank_that_survives_sigkill_ends_the_launcher(
    cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = Supervisor()
    launcher._exit = asyncio.get_running_loop().create_future()
    launcher._ranks = [Stuck()]
    if cause in ("shutdown", "immediate"):
        await asyncio.wait_for(launcher._shut_down(0, "", cause == "immediate"), 10)
    elif cause == "sigterm":
        await asyncio.wait_for(launcher._terminate(), 10)
    else:
        launcher._on_message({"type": "assignment", **ASSIGNMENT})
        forming = asyncio.create_task(launcher._form_incarnations())
        await asyncio.wait_for(asyncio.shield(launcher._exit), 10)
        await asyncio.sleep(0.1)
        assert launcher._current is None
        forming.cancel()
    assert launcher._exit.result() == 1
    assert "SIGKILL has not ended rank 3 (process 4321)" in capsys.readouterr().err


async def test_ranks_get_sigterm_after_the_proxies_have_dropped_the_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONVOY_GRACE_SECONDS", "38")
    monkeypatch.setenv("CONVOY_TERM_DELAY_SECONDS", "3")
    launcher = Supervisor()
    acts: list[tuple[str, float]] = []

    async def record(act: str, seconds: float) -> None:
        acts.append((act, seconds))

    monkeypatch.setattr(stopping, "wait_for", lambda _, seconds: record("wait", seconds))
    monkeypatch.setattr(launcher, "_stop", lambda grace: record("stop", grace))
    await launcher._terminate()
    assert acts == [("wait", 3.0), ("stop", 35.0)]


@pytest.mark.usefixtures("short_patience")
async def test_a_rank_that_is_still_being_started_is_not_stuck() -> None:
    launcher = Supervisor()
    launcher._exit = asyncio.get_running_loop().create_future()
    rank = Rank(1, 0, "")
    launcher._ranks = [rank]
    ending = asyncio.create_task(launcher._stop(0.05))
    await asyncio.sleep(0.3)
    assert not ending.done()
    rank.fail(143, "the pod is ending", False)
    await asyncio.wait_for(ending, 10)
    assert not launcher._exit.done()


@pytest.mark.usefixtures("short_patience")
async def test_a_hung_rank_that_survives_sigkill_ends_the_launcher() -> None:
    launcher = Supervisor()
    launcher._exit = asyncio.get_running_loop().create_future()
    rank = Stuck(launcher._heartbeats.create(1, 3))
    HeartbeatWriter(rank.heartbeat_path).step(1)
    rank.pid = 1  # The id of a process that exists.
    rank.hung, rank.aborted_at = True, time.monotonic()
    launcher._check_rank(rank, rank.aborted_at + 0.07)
    assert not launcher._exit.done()
    launcher._check_rank(rank, rank.aborted_at + 0.2)
    assert launcher._exit.result() == 1


@pytest.mark.parametrize(
    ("option", "code", "words"),
    [
        ("--nproc-per-node=8", 2, "processesPerReplica is 2: set it to 8"),
        ("--nproc-per-node=2", 127, "python: command not found"),
        ("--nproc-per-node=gpu", 127, "python: command not found"),
        ("--nproc=2", 127, "python: command not found"),
        ("--n=2", 2, "torchrun: error: ambiguous option: --n=2 could match"),
        ("--max-restarts=often", 2, "invalid int value: 'often'"),
        ("--processes=2", 2, "does not know the torchrun option --processes=2"),
    ],
)
async def test_arguments_that_torchrun_rejects_fail_the_rank(
    option: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    launcher = Supervisor()
    command = ["torchrun", option, "train.py"]
    await launcher._start(parse_assignment({**ASSIGNMENT, "role": "worker", "command": command}))
    for rank in launcher._ranks:
        assert (rank.exit_code, rank.state) == (code, "EXITED")
        assert words in rank.message
        assert code != 2 or rank.message.startswith("spec.roles[worker].template.spec.containers[].command: ")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("$(PROGRAM)", "no-such-program"),
        ("$(PROGRAM)$(OTHER)", "no-such-program$(OTHER)"),
        ("$$(PROGRAM)", "$(PROGRAM)"),
    ],
)
async def test_a_command_may_refer_to_variables_of_the_container(
    word: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM", "no-such-program")
    launcher = Supervisor()
    await launcher._start(parse_assignment({**ASSIGNMENT, "command": [word, "--fast"]}))
    assert [rank.message.partition(":")[0] for rank in launcher._ranks] == [message, message]


def test_each_ranks_command_refers_to_variables_of_that_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "bert")
    options = ["--nnodes=$(WORLD_SIZE)", "--node_rank=$(RANK)", "--master_port=$(MASTER_PORT)"]
    command = ["torchrun", *options, "t.py", "$(NAME)-$(RANK)", "$$(RANK)"]
    assignment = parse_assignment({**ASSIGNMENT, "command": command})
    starts = [Supervisor()._parse_command(assignment, local_rank) for local_rank in (0, 1)]
    assert [start.refusal for start in starts] == ["", ""]
    assert [start.arguments for start in starts] == [("bert-0", "$(RANK)"), ("bert-1", "$(RANK)")]


async def test_a_rank_is_checked_once_when_many_workers_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers of a rank end together. The rank must be checked only once, because each check reads all
    of /proc.
    """
    launcher = Supervisor()
    rank = Rank(1, 0, "")
    rank.pid, rank.state, rank._first_ended = 4321, RUNNING, True
    judged: list[bool] = []
    monkeypatch.setattr(rank, "end_if_over", lambda: judged.append(True))
    launcher._ranks = [rank]
    ends = [*((pid, 0) for pid in range(5000, 5500)), (0, 0)]
    monkeypatch.setattr("os.waitpid", lambda *_: ends.pop(0))
    launcher._reap()
    assert judged == [True]
