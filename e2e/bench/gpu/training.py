"""Measures whether the engine gpt, run by `convoy run` on a GPU, has the same bits after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from convoy_workloads.bench.figures import Figures, Metric

MODEL = {"batch": 16, "context": 256, "layers": 6, "width": 512, "heads": 8, "steps": 1500}
SMALL = {"batch": 2, "context": 32, "layers": 1, "width": 32, "heads": 2, "steps": 300}
KILLS = 2
_SECONDS = 80.0
_BITS = re.compile(r"sha256 ([0-9a-f]{64})")
_STEP = re.compile(r"step (\d+)/")


@dataclass(frozen=True)
class Ended:
    """A job that has ended."""

    bits: str
    """Digest of its last state."""
    killed_at: int
    """Last step that it had reported before the kill; 0 if it was not killed."""
    output: str


def add(figures: Figures, small: bool) -> None:
    """Add the rows."""
    params = SMALL if small else MODEL
    runs = [_job(params, 0), _job(params, 0)]
    words = f"{params['steps']} steps"
    metric = Metric(f"training: two undisturbed runs of gpt with other bits, {words}", "count")
    figures.add(metric, float(runs[0].bits != runs[1].bits))
    for number in range(KILLS):
        killed = _job(params, random.Random(number).randrange(params["steps"] // 5, params["steps"] // 2))
        exact = len(re.findall(", bit-exact", killed.output))
        words = f"killed after step {killed.killed_at}"
        print(f"{words}, restores {exact}, bits {killed.bits == runs[0].bits}", flush=True)
        metric = Metric("equality: gpt killed at a random step, runs with other bits", "count", 0.0)
        figures.add(metric, float(killed.bits != runs[0].bits or not exact))


def _job(params: dict[str, int], kill_at: int) -> Ended:
    """Run the job by `convoy run`. `kill_at`: first step at which its rank is killed; 0 for never. A rank is
    not killed before the first checkpoint is complete.
    """
    spec = {
        "engine": {
            "name": "gpt",
            "params": {**params, "sample_bytes": 0, "held_out_every": 10_000_000, "held_out_batches": 1},
        },
        "roles": [{"name": "worker", "replicas": 1}],
        "checkpoint": {"interval": "1s"},
    }
    with tempfile.TemporaryDirectory(prefix="convoy-gpt-") as name:
        folder = Path(name)
        manifest = folder / "job.json"
        manifest.write_text(
            json.dumps(
                {
                    "apiVersion": "convoy.dev/v1alpha1",
                    "kind": "TrainingJob",
                    "metadata": {"name": "bits"},
                    "spec": spec,
                }
            )
        )
        command = [sys.executable, "-m", "convoy.cli", "run", str(manifest), "--checkpoints", f"{name}/saved"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return _watch(process, folder / "saved", kill_at)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _watch(process: subprocess.Popen[bytes], saved: Path, kill_at: int) -> Ended:
    assert process.stdout is not None
    lines, killed_at, deadline = [], 0, time.monotonic() + _SECONDS
    for raw in process.stdout:
        line = raw.decode(errors="replace")
        lines.append(line)
        step = int(found.group(1)) if (found := _STEP.search(line)) else 0
        if kill_at and not killed_at and step >= kill_at and list(saved.glob("*/COMMIT.json")):
            os.kill(_rank_of(process.pid), signal.SIGKILL)
            killed_at = step
        if time.monotonic() > deadline:
            raise TimeoutError("".join(lines[-20:]))
    output = "".join(lines)
    bits = _BITS.search(output)
    if process.wait() or bits is None:
        raise RuntimeError(f"the job has failed:\n{output[-3000:]}")
    return Ended(bits.group(1), killed_at, output)


def _rank_of(run: int) -> int:
    """Return the process id of the rank, a descendant of the process `run`."""
    waiting = [run]
    while waiting:
        pid = waiting.pop()
        if Path(f"/proc/{pid}/comm").read_text().startswith("rank-"):
            return pid
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                waiting += map(int, (thread / "children").read_text().split())
    raise RuntimeError("the job has no rank")


def device() -> str:
    """Return the device to measure: the GPU, or the CPU to try the bench."""
    return "cuda" if torch.cuda.is_available() else "cpu"
