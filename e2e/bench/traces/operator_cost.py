"""Processor time that the recorder takes for one operator, in one process with a tiny model."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from convoy_workloads.traces.record import record
from convoy_workloads.traces.torch_json.document import load_json

STEPS = 20
REPEATS = 5


def operator_costs() -> list[float]:
    """Return the microseconds of processor time for a node of the host trace, one value for each repeat."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layers: list[nn.Module] = []
        for _ in range(12):
            layers += [nn.Linear(64, 64), nn.ReLU()]
        return [_cost(nn.Sequential(*layers), torch.randn(8, 64)) for _ in range(REPEATS)]
    finally:
        torch.set_num_threads(threads)


def _cost(model: nn.Module, batch: torch.Tensor) -> float:
    def step() -> float:
        before = time.process_time()
        model(batch).square().mean().backward()
        return time.process_time() - before

    step()
    usual = statistics.median(step() for _ in range(STEPS))
    with tempfile.TemporaryDirectory(prefix="convoy-traces-") as name:
        times = []
        with record(Path(name), range(STEPS), rank=0) as recorder:
            for number in range(STEPS):
                with recorder.step(number):
                    times.append(step())
        if recorder.problem:
            raise RuntimeError(recorder.problem)
        nodes = len(load_json(recorder.files[0])["nodes"])
    return 1e6 * (statistics.median(times) - usual) * STEPS / nodes
