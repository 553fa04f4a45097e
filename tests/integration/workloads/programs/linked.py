"""A rank that trains on plain gloo and on emulated links, and reports accounts and weights as JSON.

Arguments: the rank, and a folder for the rendezvous.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from convoy_workloads.comm.linked_group import init, new_group
from convoy_workloads.comm.links import Link, Links
from convoy_workloads.comm.pacing import Pacer

WIDTH, STEPS, WORLD = 64, 3, 2
RUNS = {
    "plain": None,
    "fast": Link(1_048_576.0),
    "slow": Link(262_144.0),
    "far": Link(1_048_576.0, latency_seconds=0.125),
}
"""Links by name. Powers of two, so that all sums of seconds are exact."""


class Clock:
    """A clock that only sleeping moves."""

    now = 0.0
    slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def train(rank: int, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> str:
    """Train for some steps. Return a digest of the weights."""
    torch.manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        batch = torch.randn(4, WIDTH)
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
    return str(model.module.weight.detach().sum().item())


def operations(rank: int, group: Any) -> dict[str, bool]:
    """Run each operation once, and compare its result."""
    own, both = torch.full((2,), rank + 1.0), [torch.zeros(2), torch.zeros(2)]
    done = {}
    total = own.clone()
    dist.all_reduce(total, group=group)
    done["all_reduce"] = total.tolist() == [3.0, 3.0]
    dist.all_gather(both, own)
    done["all_gather"] = [one[0].item() for one in both] == [1.0, 2.0]
    flat = torch.zeros(4)
    dist.all_gather_single(flat, own)
    done["all_gather_single"] = flat.tolist() == [1.0, 1.0, 2.0, 2.0]
    part = torch.zeros(2)
    dist.reduce_scatter_single(part, flat)
    done["reduce_scatter_single"] = part.tolist() == [2.0 * (rank + 1)] * 2
    exchanged = torch.zeros(2)
    dist.all_to_all_single(exchanged, own)
    done["all_to_all_single"] = exchanged.tolist() == [1.0, 2.0]
    told = own.clone()
    dist.broadcast(told, 1)
    done["broadcast"] = told.tolist() == [2.0, 2.0]
    dist.gather(own, both if rank == 0 else None, dst=0)
    done["gather"] = rank != 0 or both[1].tolist() == [2.0, 2.0]
    dist.scatter(part, both if rank == 0 else None, src=0)
    done["scatter"] = part.tolist() == [rank + 1.0] * 2
    total = own.clone()
    dist.reduce(total, 0)
    done["reduce"] = rank != 0 or total.tolist() == [3.0, 3.0]
    given = own.clone()
    if rank == 0:
        dist.send(given, 1)
    else:
        dist.recv(given, 0)
    done["send_and_receive"] = given.tolist() == [1.0, 1.0]
    control = own.clone()
    dist.all_reduce(control, group=dist.new_group(backend="gloo"))  # As convoy.join() does.
    done["control_group"] = control.tolist() == [3.0, 3.0]
    names: list[Any] = [None, None]
    dist.all_gather_object(names, f"rank {rank}")
    done["objects"] = names == ["rank 0", "rank 1"]
    dist.barrier()
    return {**done, "barrier": True}


def run(rank: int, rendezvous: str, link: Link | None) -> dict[str, Any]:
    """Form the process group, on this link or on plain gloo, and train. Return accounts and weights."""
    settings: dict[str, Any] = {"init_method": rendezvous, "rank": rank, "world_size": WORLD}
    clock = Clock()
    pacer = Pacer(lambda: clock.now, clock.sleep)
    emulation = init(Links(link), pacer, **settings) if link else dist.init_process_group("gloo", **settings)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(rank, model, optimizer)  # DDP exchanges more than gradients in its first two steps.
    before, sent = pacer.seconds, pacer.sent[1, 0]
    report: dict[str, Any] = {"weights": train(rank, model, optimizer)}
    report |= {"seconds": pacer.seconds - before, "sent": pacer.sent[1, 0] - sent}
    dist.barrier()
    report |= {"allSeconds": pacer.seconds, "slept": clock.slept}
    if emulation:
        report["operations"] = operations(rank, new_group(emulation))
    dist.destroy_process_group()
    return report


if __name__ == "__main__":
    torch.set_num_threads(1)
    own, folder = int(sys.argv[1]), sys.argv[2]
    print(json.dumps({name: run(own, f"file://{folder}/{name}", link) for name, link in RUNS.items()}))
