"""Trains with uneven inputs: rank 1 has fewer batches than the other ranks and exits early."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30 if rank == 1 else 40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    time.sleep(0.1)
print(f"rank {rank} has finished", flush=True)
if rank == 1:
    os._exit(0)
dist.destroy_process_group()
