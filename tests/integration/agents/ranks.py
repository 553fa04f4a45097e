"""Ranks that are processes of a test's own, forked where torch is imported already."""

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
"""Patience with a single line of output."""
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
        """The exit status, negative for a signal."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Sends a signal unless the process has ended."""
        if self.returncode is None and self._process.pid is not None:
            # Its end may not be known here yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def wait(self) -> int:
        """Return the exit status, once there is one."""
        await asyncio.to_thread(self._process.join)
        status = self._process.exitcode
        assert status is not None
        return status


@dataclass
class Rank:
    """A process, and what it has said."""

    process: Process
    lines: list[str] = field(default_factory=list)

    async def until(self, pattern: str) -> str:
        """The first line from now on that matches."""
        async with asyncio.timeout(SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found[0]
        raise AssertionError("".join(self.lines))

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.send_signal(signal.SIGKILL)


async def start(program: Path, argument: str, environment: Mapping[str, str]) -> Rank:
    """A process that runs a program as `python FILE ARGUMENT`, with these variables besides the test's."""
    receiving, sending = _FORKS.Pipe(duplex=False)
    variables = {**os.environ, **environment}
    process = _FORKS.Process(target=_run, args=(sending, str(program), argument, variables), daemon=True)
    # The first one waits for the server's imports.
    await asyncio.to_thread(process.start)
    sending.close()
    stdout = asyncio.StreamReader()
    end = os.fdopen(os.dup(receiving.fileno()), "rb")
    receiving.close()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), end)
    return Rank(Process(process, stdout))


def _run(output: Connection, program: str, argument: str, environment: dict[str, str]) -> None:
    """The child's part."""
    for target in (1, 2):
        os.dup2(output.fileno(), target)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    # The fork server passes over what it cannot import.
    assert "tests.integration.agents.preload" in sys.modules, "nothing is warm"
    sys.argv = [program, argument]
    runpy.run_path(program, run_name="__main__")


def variables(rank: int, world: int, port: int, incarnation: int, socket: Path | None) -> dict[str, str]:
    """The environment of a rank as a launcher sets it; `socket`: of the rank's agent."""
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
    """Where a pod's agent listens; None for a pod without name."""
    return folder / f"{uid[:8]}-{incarnation}" / "agent.sock" if uid else None


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[list[Rank]]:
    """Processes that are to end with the test: it adds them."""
    ranks: list[Rank] = []
    try:
        yield ranks
    finally:
        await killed(*ranks)


async def killed(*ranks: Rank) -> None:
    """Kills all, then waits for each."""
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
    """A process for each pod, or without one for an empty name. `dies`: step and percent of the copy at which
    the last rank dies, and of which signal. `edits`: step from which on somebody writes to a weight beside
    the optimizer.
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
    """The digests that the ranks end with."""
    return {await rank.until(r"END \w+") for rank in ranks}
