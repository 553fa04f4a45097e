"""Measures saves and restores in a node's memory. A real agent runs in this process, the rank in another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.agents.harness import Authority, FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob

from convoy_agents.csi import mounts
from convoy_agents.tiercheck.memory import used_bytes
from e2e.bench.kit.packages import install
from e2e.bench.tiercheck.saving.libraries import LIBRARIES
from e2e.bench.tiercheck.saving.rank import COMMITTED, SAVING, SPACE, Task
from e2e.cluster import files
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress

UID = "bench-0000"
PROGRAM = "e2e.bench.tiercheck.saving.rank"
LOOPBACK = "127.0.0.1"
RESTORES = 10
CPU, FULL, ALL = "agent's processor time", "space of full saves", "space of all"
EARLY, LATE = "agent's memory after five minutes", "agent's memory at the end"
_EARLY_SECONDS = 300.0
_SECONDS = 3600.0
"""Maximum seconds for one incarnation of the rank."""


@dataclass
class Measurements:
    """Measured values by kind, and the reasons why kinds could not be measured."""

    values: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, value: float) -> None:
        """Add a value of a kind."""
        self.values.setdefault(kind, []).append(value)


async def measure(
    root: Path, parameters: int, rounds: int, lengths: Sequence[float], methods: bool, progress: Progress
) -> Measurements:
    """Measure saves and steps. With `methods`, measure other save methods and restores too."""
    folder = root / "saves"
    folder.mkdir()
    found = Measurements()
    # The installation takes a while and would block the agents, which run in this process. So install the
    # libraries before the agents start.
    libraries = {name: _folder_or_why(name) for name in LIBRARIES} if methods else {}
    async with hub_at() as hub, node(root / "nodes", hub, 28 * parameters * 3) as host:
        job = MemoryJob(hub, root)
        await job.form(1, [(UID, host)])
        progress.report("saving with every method in turn, and beside steps")
        parts = ["methods", "journal"] if methods else []
        cpu_before: list[float] = []

        began = time.monotonic()

        def on_value(kind: str) -> None:
            if EARLY not in found.values and time.monotonic() - began > _EARLY_SECONDS:
                found.add(EARLY, float(_resident()))
            if kind == SAVING:
                cpu_before.append(_processor_seconds())
            elif kind == COMMITTED:
                found.add(CPU, _processor_seconds() - cpu_before[-1])
            elif kind == SPACE:
                found.add(FULL, float(_used_memory(host)))

        try:
            task = Task(parameters, rounds, str(folder), libraries, list(lengths), parts)
            await run_rank(root, 1, [PROGRAM, task.text()], found, on_value)
        finally:
            _clean_up(root.name)
        found.add(ALL, float(_used_memory(host)))
        if EARLY in found.values:
            found.add(LATE, float(_resident()))
        for incarnation in range(2, 2 + RESTORES * methods):
            progress.report("restoring")
            await job.form(incarnation, [(UID, host)])
            task = Task(parameters, 0, str(folder), parts=["restore"])
            await run_rank(root, incarnation, [PROGRAM, task.text()], found)
    return found


@contextlib.asynccontextmanager
async def hub_at(address: str = LOOPBACK) -> AsyncIterator[FakeHub]:
    """Run a simulated hub for agents while the block runs."""
    hub = FakeHub(Authority(), address)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


@contextlib.asynccontextmanager
async def node(root: Path, hub: FakeHub, memory: int) -> AsyncIterator[Host]:
    """Run a node whose agent is in this process. Yield it when the agent has sent Hello.

    After the block, unmount everything that the agent has mounted.
    """
    host = Host(root, "one", hub, memory, hub.address)
    await host.start()
    try:
        await hub.until(lambda name, message: name == host.node and message.HasField("hello"))
        yield host
    finally:
        await host.stop()
        unmount(root)


def unmount(root: Path) -> None:
    """Unmount everything below a folder."""
    for mount in mounts.table():
        if Path(mount.target).is_relative_to(root):
            mounts.unmount(Path(mount.target))


async def run_rank(
    root: Path,
    incarnation: int,
    program: Sequence[str],
    found: Measurements,
    on_value: Callable[[str], None] = lambda kind: None,
) -> None:
    """Run the rank's program, which is a module with its arguments. Raise RuntimeError if it fails, and
    TimeoutError if it takes over _SECONDS.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(files.CHECKOUT), str(files.CHECKOUT / "workloads"), os.environ.get("PYTHONPATH", "")]
        ),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "CONVOY_INCARNATION": str(incarnation),
        "CONVOY_CHECKPOINT_SECONDS": "3600",
        "CONVOY_CHECKPOINT_TIERS": "local",
        "CONVOY_SOCKET": str(root / f"{UID[:8]}-{incarnation}" / "agent.sock"),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *program),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            assert process.stdout is not None
            async for line in process.stdout:
                one = json.loads(line)
                if "why" in one:
                    found.missing[one["kind"]] = one["why"]
                    continue
                on_value(one["kind"])
                found.add(one["kind"], one["value"])
            if await process.wait():
                raise RuntimeError(f"the rank's program failed with exit code {process.returncode}")
    finally:
        # Kill the whole process group, because libraries fork processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _folder_or_why(name: str) -> str:
    try:
        return str(install(LIBRARIES[name]))
    except ClusterError as error:
        return f"not installed: {str(error).strip().splitlines()[-1]}"


def _clean_up(name: str) -> None:
    """Remove what libraries leave in memory when their processes are killed."""
    for path in Path("/dev/shm").glob(f"{name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # DLRover keeps its sockets in this folder.
    shutil.rmtree(Path("/tmp/ckpt_sock") / name, ignore_errors=True)


def _used_memory(host: Host) -> int:
    """Return the number of bytes of the node's memory that the job uses."""
    shares = [Path(one.target) for one in mounts.table()]
    return sum(used_bytes(one) for one in shares if one.is_relative_to(host.settings.run_dir / "memory"))


def _resident() -> int:
    """Return the bytes of memory that this process, with its agent, uses of its own: without the files of a
    tmpfs.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def _processor_seconds() -> float:
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime
