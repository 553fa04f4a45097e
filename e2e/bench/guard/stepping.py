"""A program that trains as one rank, with or without telemetry, and prints the cost of its steps.

`python -m e2e.bench.guard.stepping WIDTH BATCH STEPS [SOCKET]`. With SOCKET, the program sends telemetry
windows to this socket.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from convoy_workloads.runtime.link import RankLink
from convoy_workloads.runtime.telemetry import torch_hooks

WARM_UP = 5
"""Number of steps before the measured steps. The telemetry of these steps is sent as well."""


def main(width: int, batch: int, steps: int, socket: str = "") -> None:
    """Print the processor seconds per step, over all threads, and the median duration of a step."""
    torch.set_num_threads(1)
    recorder = link = None
    if socket:
        link = RankLink(socket, {"type": "hello"}, lambda _: None)
        recorder = torch_hooks.install()
        recorder.send = link.telemetry
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        samples = torch.randn(batch, width)
        walls, spent = [], 0.0
        for step in range(1, WARM_UP + steps + 1):
            if step == WARM_UP + 1:
                spent = time.process_time()
            began = time.perf_counter()
            optimizer.zero_grad()
            model(samples).square().mean().backward()
            optimizer.step()
            if recorder is not None:
                recorder.step(step)
            walls.append(time.perf_counter() - began)
        spent = time.process_time() - spent
        if link is not None:
            link.close()
        dist.destroy_process_group()
    print(json.dumps({"cpu": spent / steps, "wall": statistics.median(walls[WARM_UP:])}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
