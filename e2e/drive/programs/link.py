"""A DistributedDataParallel program that exchanges gradients of 1 MiB for some time. Its result is the number
of steps.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import convoy

SECONDS = 60.0
WIDTH = 512
"""Width of the layer: its gradient has 1 MiB."""


def main() -> None:
    """Run one rank's training."""
    with convoy.join() as job:
        torch.set_num_threads(1)
        model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        until, done, over = time.monotonic() + SECONDS, 0, torch.zeros(1)
        for step in job.steps(1_000_000):
            batch = torch.randn(4, WIDTH)
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            job.report(step, loss=loss)
            done = step
            # The ranks must agree on the last step.
            over.fill_(float(time.monotonic() >= until))
            torch.distributed.all_reduce(over)
            if over.item():
                break
        if job.rank == 0:
            job.set_result({"steps": done})


if __name__ == "__main__":
    main()
