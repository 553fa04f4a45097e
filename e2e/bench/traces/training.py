"""Runs a training job of a shape, and reads what it has left: times and converted traces."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.trace import Trace
from e2e.bench.traces.network import INTERFACE, network
from e2e.bench.traces.rank import Report, Settings
from e2e.bench.traces.shape import Shape

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 1200.0


class TrainingError(RuntimeError):
    """Raised if a rank fails or is late. The message has the end of its output."""


@dataclass(frozen=True)
class Run:
    """Times and traces of a job."""

    reports: list[Report]
    """Times of each rank."""
    traces: list[list[Trace]]
    """Traces of each recorded block, in the order of the ranks."""


def run_training(
    shape: Shape,
    blocks: Sequence[str],
    steps: int,
    collectives: Sequence[int] = (),
    connected: AbstractContextManager[list[list[str]]] | None = None,
) -> Run:
    """Run a job with `blocks` of `steps` steps each. Raises TrainingError if a rank fails or is late.

    `connected` yields the words before the command of each rank; without it, the shape names the links.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-traces-") as name:
        folder = Path(name)
        settings = Settings(name, shape, tuple(blocks), steps, tuple(collectives))
        with connected or _prefixes(shape) as prefixes:
            _run_ranks(settings, prefixes, folder)
        reports = [
            Report(**json.loads((folder / f"rank.{rank}.json").read_text())) for rank in range(shape.ranks)
        ]
        for rank, report in enumerate(reports):
            if report.problems:
                raise TrainingError(f"rank {rank} has no trace: {report.problems[0]}")
        recorded = [folder / f"traces{number}" for number in range(len(blocks))]
        return Run(reports, [read_traces(one, shape.ranks) for one in recorded if one.exists()])


def read_traces(folder: Path, ranks: int) -> list[Trace]:
    """Return the converted traces of all ranks. Raises TrainingError if anything is not clear in them."""
    found = []
    for rank in range(ranks):
        host, kineto = (load_json(folder / f"{kind}.{rank}.json") for kind in ("host", "kineto"))
        conversion = convert(host, kineto, rank)
        if conversion.findings:
            raise TrainingError(f"rank {rank}: {conversion.findings[0].line()}")
        found.append(conversion.trace)
    return found


@contextlib.contextmanager
def _prefixes(shape: Shape) -> Iterator[list[list[str]]]:
    """Yield the words before the command of each rank."""
    if shape.bits_per_second is None or shape.emulated:
        yield [["env", "GLOO_SOCKET_IFNAME=lo"] for _ in range(shape.ranks)]
        return
    with network(shape.ranks, shape.bits_per_second) as prefixes:
        yield [[*prefix, "env", f"GLOO_SOCKET_IFNAME={INTERFACE}"] for prefix in prefixes]


def _run_ranks(settings: Settings, prefixes: Sequence[Sequence[str]], folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []
        for rank, prefix in enumerate(prefixes):
            log = stack.enter_context((folder / f"log.{rank}").open("wb"))
            command = [*prefix, sys.executable, "-m", "e2e.bench.traces.rank", str(rank), settings.as_json()]
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            running.append(process)
        deadline = time.monotonic() + DEADLINE_SECONDS
        for rank, process in enumerate(running):
            try:
                code: int | None = process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                why = (
                    f"ran longer than {DEADLINE_SECONDS:g} s"
                    if code is None
                    else f"ended with exit code {code}"
                )
                end = (folder / f"log.{rank}").read_text(errors="replace")[-2000:]
                raise TrainingError(f"{settings.shape}: rank {rank} {why}:\n{end}")
