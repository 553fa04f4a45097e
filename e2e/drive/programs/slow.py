"""A small DistributedDataParallel program that pauses after each step, until a file removes the pauses."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import convoy

NO_PAUSES = Path("/control/no-pauses")
STEPS = 4000
PAUSE_SECONDS = 0.1
"""Seconds of pause after each step. With the pauses the program runs for about seven minutes."""
WIDTH = 64


def main() -> None:
    """Run one rank's training."""
    with convoy.join() as job:
        torch.set_num_threads(1)
        model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        job.restore(model=model, optimizer=optimizer)
        for step in job.steps(STEPS):
            batch = torch.randn(8, WIDTH)
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            job.report(step, loss=loss)
            job.checkpoint(step)
            if not NO_PAUSES.exists():
                time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
