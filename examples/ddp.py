"""An ordinary PyTorch DistributedDataParallel script for torchrun. It does not use Convoy.

It learns to classify points of two spirals, and saves a snapshot to continue from after a restart.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def spirals(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points [count, 2] on two interleaved spirals, and the spiral of each point [count]."""
    label = torch.randint(0, 2, (count,), generator=generator)
    turn = 9 * torch.rand(count, generator=generator)
    angle = turn + torch.pi * label
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * turn[:, None] / 9
    return points + 0.01 * torch.randn(count, 2, generator=generator), label


def main() -> None:
    """Train one rank."""
    dist.init_process_group("gloo")
    rank, steps = dist.get_rank(), int(os.environ.get("STEPS", "300"))
    snapshot = Path(os.environ.get("SNAPSHOT", "snapshot.pt"))
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    box = [torch.load(snapshot) if rank == 0 and snapshot.exists() else None]
    dist.broadcast_object_list(box)  # the other ranks may run on other machines
    if box[0]:
        model.load_state_dict(box[0]["model"])
        optimizer.load_state_dict(box[0]["optimizer"])
        start = box[0]["step"]
        if rank == 0:
            print(f"continues after step {start}")

    for step in range(start + 1, steps + 1):
        points, label = spirals(256, torch.Generator().manual_seed(step * dist.get_world_size() + rank))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points), label)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, snapshot.with_suffix(".tmp"))
            snapshot.with_suffix(".tmp").rename(snapshot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
