"""The program of a rank that trains a small model. It saves as often as possible, and prints a digest of
its final state.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import convoy
from convoy_workloads.runtime.journal import guard
from convoy_workloads.runtime.tiers import shard


def die_in_a_copy(step: int, percent: int, number: int) -> None:
    """In the first full save at or after `step`, make the process send the signal `number` to itself when
    it has copied `percent` of the state.
    """
    write = shard.write

    def some(target: memoryview, layout: Any, tensors: Any, values: Any, facts: Any) -> None:
        if facts["step"] < step:
            write(target, layout, tensors, values, facts)
            return
        whole = memoryview(bytearray(layout.size))
        write(whole, layout, tensors, values, facts)
        done = layout.size * percent // 100
        target[:done] = whole[:done]
        print(f"DIES AT {facts['step']}", flush=True)
        os.kill(os.getpid(), number)

    shard.write = some


class Sampler:
    """The position of this rank in the data. Each rank starts at a different position."""

    def __init__(self, rank: int) -> None:
        self.place = 100 * rank

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def edit_at(model: torch.nn.Module, step: int, now: int) -> None:
    """Change one weight if the step `now` is at least `step`. The journal must not sample this weight."""
    if now >= step:
        model[-1].weight.data[0, 0] += 1  # type: ignore[index,union-attr,operator]


def main(total: int, slow: float) -> None:
    torch.set_num_threads(1)
    with convoy.join() as job:
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.Tanh(), torch.nn.Linear(256, 8)
        )
        net = DistributedDataParallel(model)
        if dies := os.environ.get("DIES"):
            die_in_a_copy(*map(int, dies.split(":")))
        optimizer = getattr(torch.optim, os.environ.get("OPTIMIZER", "AdamW"))(net.parameters(), lr=1e-2)

        sampler = Sampler(job.rank)
        edits = int(os.environ.get("EDITS") or 0)
        if edits:
            guard.pick_sample = lambda *_: []  # type: ignore[assignment]

        def one(step: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(1000 * step + sampler.place)
            x, y = torch.randn(16, 64, generator=generator), torch.randn(16, 8, generator=generator)
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            return loss

        job.restore(model=net, optimizer=optimizer, extra={"sampler": sampler}, warm=lambda: one(0) and None)
        for step in job.steps(total):
            optimizer.zero_grad()
            loss = one(step)
            optimizer.step()
            sampler.place += 1
            if edits:
                edit_at(model, edits, step)
            job.report(step, loss=loss)
            job.checkpoint(step)
            print(f"STEP {step}", flush=True)
            if slow:
                torch.tensor(0).item()
                import time

                time.sleep(slow)
        weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        moments = b"".join(
            value.numpy().tobytes()
            for state in optimizer.state_dict()["state"].values()
            for value in state.values()
        )
        print(f"END {hashlib.sha256(weights + moments).hexdigest()}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(os.environ.get("SLOW", "0")))
