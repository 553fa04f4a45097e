"""The program of a rank that trains a small model with DDP, with Convoy's API or without it (PLAIN=1). It
waits before step HOLD until the file GO exists.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import convoy
from convoy_workloads.runtime import hooks
from convoy_workloads.runtime.rank_context import from_environment

PARAMETERS = 64 * 256 + 256 + 256 * 8 + 8


def train(numbers: Iterable[int], net: DistributedDataParallel) -> None:
    hold, go = int(os.environ.get("HOLD") or 0), Path(os.environ.get("GO", "/"))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in numbers:
        deadline = time.monotonic() + 60
        while step == hold and not go.exists():
            assert time.monotonic() < deadline, "the test does not let the rank go on"
            time.sleep(0.01)
        optimizer.zero_grad()
        net(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        print(f"STEP {step}", flush=True)


def model() -> DistributedDataParallel:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
    return DistributedDataParallel(layers, bucket_cap_mb=0.02)


def main(total: int) -> None:
    torch.set_num_threads(1)
    if os.environ.get("PLAIN"):
        # As the launcher does for a program that may not use the API.
        hook = hooks.install(from_environment(os.environ))
        dist.init_process_group("gloo")
        train(range(1, total + 1), model())
        dist.destroy_process_group()
        hooks.finish()
        hook.close()
    else:
        with convoy.join() as job:
            net = model()
            train(job.steps(total), net)
    print("END of the training", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
