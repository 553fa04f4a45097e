"""Ranks as child processes of a test, forked from a server that has imported torch."""

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

from tests.integration.ports import free_port

REPOSITORY = Path(__file__).parents[3]
SECONDS = 120.0
"""Timeout of a single line of output."""
TRAINER = Path(__file__).with_name("trainer.py")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.integration.agents.preload"])


class Process:
    """A child of the fork server."""

    def __init__(self, process: multiprocessing.process.BaseProcess, stdout: asyncio.StreamReader) -> None:
        self._process = process
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has exited."""
        if self.returncode is None and self._process.pid is not None:
            # The process may have exited without this process knowing it yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def wait(self) -> int:
        """Wait for the exit and return the status."""
        await asyncio.to_thread(self._process.join)
        status = self._process.exitcode
        assert status is not None
        return status


@dataclass
class Rank:
    """A process and its output."""

    process: Process
    lines: list[str] = field(default_factory=list)

    async def until(self, pattern: str) -> str:
        """Return the next line that matches."""
        async with asyncio.timeout(SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found[0]
        raise AssertionError("".join(self.lines))

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.send_signal(signal.SIGKILL)


async def start(program: Path, argument: str, environment: Mapping[str, str]) -> Rank:
    """Start a program as `python FILE ARGUMENT`, with these variables added to the test's environment."""
    receiving, sending = _FORKS.Pipe(duplex=False)
    variables = {**os.environ, **environment}
    process = _FORKS.Process(target=_run, args=(sending, str(program), argument, variables), daemon=True)
    # The first process waits for the server's imports.
    await asyncio.to_thread(process.start)
    sending.close()
    stdout = asyncio.StreamReader()
    end = os.fdopen(os.dup(receiving.fileno()), "rb")
    receiving.close()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), end)
    return Rank(Process(process, stdout))


def _run(output: Connection, program: str, argument: str, environment: dict[str, str]) -> None:
    """The main function of the child."""
    for target in (1, 2):
        os.dup2(output.fileno(), target)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    # The fork server skips modules that it cannot import.
    assert "tests.integration.agents.preload" in sys.modules, "nothing is warm"
    sys.argv = [program, argument]
    runpy.run_path(program, run_name="__main__")


def variables(rank: int, world: int, port: int, incarnation: int, socket: Path | None) -> dict[str, str]:
    """Return a rank's environment as a launcher sets it. `socket` belongs to the rank's agent."""
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
    """Return the socket of a pod's agent; None for an empty uid."""
    return folder / f"{uid[:8]}-{incarnation}" / "agent.sock" if uid else None


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[list[Rank]]:
    """Yield a list for processes that are killed at the end of the test."""
    ranks: list[Rank] = []
    try:
        yield ranks
    finally:
        await killed(*ranks)


async def killed(*ranks: Rank) -> None:
    """Kill all processes, then wait for them."""
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
    """Start one process per pod, or a process without an agent for an empty uid.

    `dies` is a step, a percentage of the copy, and a signal: the last rank dies of it at that point. From
    step `edits` on, the program changes a weight without the optimizer.
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
    """Return the digests of the ranks' final states."""
    return {await rank.until(r"END \w+") for rank in ranks}
