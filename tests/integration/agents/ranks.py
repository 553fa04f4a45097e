"""Real ranks as child processes of a test. They are forked from a server that has already imported torch."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import runpy
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.ports import free_port

REPOSITORY = Path(__file__).parents[3]
SECONDS = 120.0
"""Seconds that a test waits for one line of a rank's output."""
TRAINER = Path(__file__).with_name("trainer.py")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.integration.agents.preload"])


class Process:
    """A child process of the fork server."""

    def __init__(self, process: multiprocessing.process.BaseProcess, stdout: asyncio.StreamReader) -> None:
        self._process = process
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, unless it has exited."""
        if self.returncode is None and self._process.pid is not None:
            # If the process has just exited, its exit status may not be known here yet, and no process has
            # this pid.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def wait(self) -> int:
        """Wait until the process exits, and return its exit status."""
        await asyncio.to_thread(self._process.join)
        status = self._process.exitcode
        assert status is not None
        return status


@dataclass
class Rank:
    """The process of a rank, and the lines of its output that `until` has read."""

    process: Process
    lines: list[str] = field(default_factory=list)

    async def until(self, pattern: str) -> str:
        """Read output until a line matches `pattern`, and return the matching part of the line."""
        async with asyncio.timeout(SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found[0]
        raise AssertionError("".join(self.lines))

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)


async def start(program: Path, argument: str, environment: Mapping[str, str]) -> Rank:
    """Start a program in a child process. The child gets the test's environment and, in addition,
    `environment`.
    """
    receiving, sending = _FORKS.Pipe(duplex=False)
    variables = {**os.environ, **environment}
    process = _FORKS.Process(target=_run, args=(sending, str(program), argument, variables), daemon=True)
    # The first start blocks until the fork server has imported its modules, so call it in a thread.
    await asyncio.to_thread(process.start)
    sending.close()
    stdout = asyncio.StreamReader()
    end = os.fdopen(os.dup(receiving.fileno()), "rb")
    receiving.close()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), end)
    return Rank(Process(process, stdout))


def _run(output: Connection, program: str, argument: str, environment: dict[str, str]) -> None:
    """Run the program. This is the main function of the child process."""
    for target in (1, 2):
        os.dup2(output.fileno(), target)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    # The fork server silently skips a module that it cannot import. So check that it imported the preload
    # module.
    assert "tests.integration.agents.preload" in sys.modules, "nothing is warm"
    sys.argv = [program, argument]
    runpy.run_path(program, run_name="__main__")


def variables(rank: int, world: int, port: int, incarnation: int, socket: Path | None) -> dict[str, str]:
    """Return the environment variables that a launcher sets for a rank. `socket` is the path of the agent's
    socket.
    """
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "CONVOY_CHECKPOINT_SECONDS": "0",
        "CONVOY_INCARNATION": str(incarnation),
    }
    return found | ({"CONVOY_SOCKET": str(socket)} if socket else {})


def socket_of(folder: Path, uid: str, incarnation: int) -> Path | None:
    """Return the path of the agent's socket for a pod, in the folder that `MemoryJob` links; None for an
    empty uid.
    """
    return folder / f"{uid[:8]}-{incarnation}" / "agent.sock" if uid else None


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[list[Rank]]:
    """Yield a list to which the test adds ranks. At the end, kill all ranks in the list."""
    ranks: list[Rank] = []
    try:
        yield ranks
    finally:
        await killed(*ranks)


async def killed(*ranks: Rank) -> None:
    """Kill all ranks, and wait until they have exited."""
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        await rank.process.wait()


async def train(
    folder: Path,
    incarnation: int,
    total: int,
    uids: list[str],
    slow: float = 0.0,
    tiers: str = "local,peer",
    optimizer: str = "AdamW",
    dies: str = "",
    edits: int = 0,
) -> list[Rank]:
    """Start one trainer process (trainer.py) per pod uid in `uids`. A process with an empty uid runs
    without an agent.

    `dies` contains a step, a percentage and a signal, separated by colons. The last rank kills itself with
    the signal during its first full save at or after that step, when it has copied that percentage of its
    state. From step `edits` on, the program changes a weight without the optimizer.
    """
    port = free_port()
    ranks = []
    for rank, uid in enumerate(uids):
        environment = {
            **variables(rank, len(uids), port, incarnation, socket_of(folder, uid, incarnation)),
            "SLOW": str(slow),
            "OPTIMIZER": optimizer,
            "DIES": dies if rank == len(uids) - 1 else "",
            "EDITS": str(edits) if edits else "",
        }
        if uid:
            environment["CONVOY_CHECKPOINT_TIERS"] = tiers
        ranks.append(await start(TRAINER, str(total), environment))
    return ranks


async def ended(ranks: list[Rank]) -> set[str]:
    """Wait until the ranks have ended. Return the set of the digests of their final states."""
    return {await rank.until(r"END \w+") for rank in ranks}
