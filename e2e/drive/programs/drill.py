"""A small DistributedDataParallel program whose faults the test switches on and off.

The test writes files into FOLDER while the program runs. Each file holds a number:

- `loader`: additional seconds to load each batch;
- `start`: any number; the first incarnation starts to train when this file exists;
- `garbage`: number of cyclic objects that Python's garbage collector must scan in each forward pass.

With the environment variable DRILL_SLOW_RANK, each forward pass of that rank takes DRILL_SLOW_SECONDS
longer on every node.
"""

from __future__ import annotations

import gc
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import convoy

FOLDER = Path("/drill")
BLOCK = 256 * 1024
BLOCKS = 16
WIDTH, LAYERS = 256, 4


def fault_size(name: str) -> float:
    """Return the number in the file of a fault; 0 if there is no file."""
    try:
        return float((FOLDER / name).read_text())
    except FileNotFoundError:
        return 0.0


class Samples(IterableDataset[torch.Tensor]):
    """Dataset of random batches with the shape [BLOCK / 4 / WIDTH, WIDTH]. It reads each batch from the
    disk, without the page cache.
    """

    def __iter__(self) -> Iterator[torch.Tensor]:
        path = FOLDER / "samples"
        path.write_bytes(os.urandom(BLOCK) * BLOCKS)
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        block = mmap.mmap(-1, BLOCK)
        number = 0
        while True:
            os.preadv(file, [block], number % BLOCKS * BLOCK)
            time.sleep(fault_size("loader"))
            yield torch.frombuffer(block, dtype=torch.int32).reshape(-1, WIDTH) / 2**31
            number += 1


class Model(nn.Module):
    """Layers whose forward pass takes `delay_seconds` longer."""

    def __init__(self, delay_seconds: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))
        )
        self.delay_seconds = delay_seconds

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the output of the layers for a batch, after the delay and the garbage collection."""
        time.sleep(self.delay_seconds)
        if count := int(fault_size("garbage")):
            rings = [[None] for _ in range(count)]
            for ring in rings:
                ring[0] = ring  # type: ignore[call-overload]
            del rings
            gc.collect()
        found: torch.Tensor = self.layers(samples)
        return found


def main() -> None:
    """Run one rank's endless training."""
    with convoy.join() as job:
        torch.set_num_threads(1)
        slow = job.rank == int(os.environ.get("DRILL_SLOW_RANK", "-1"))
        plain = Model(float(os.environ["DRILL_SLOW_SECONDS"]) if slow else 0.0)
        model = DistributedDataParallel(plain)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        job.restore(model=model, optimizer=optimizer)
        while job.incarnation == 1 and not (FOLDER / "start").exists():
            time.sleep(0.1)
        samples = iter(DataLoader(Samples(), batch_size=None))
        for step in job.steps(1_000_000):
            batch = next(samples)
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            job.report(step, loss=loss)
            job.checkpoint(step)


if __name__ == "__main__":
    main()
