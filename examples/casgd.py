"""Logistic regression by CA-SGD in a program of your own: `torchrun --nproc-per-node=2 examples/casgd.py`, or
the command of a TrainingJob. The loop is that of SGD; only the optimizer is another.

With two ranks it prints 50 all-reduces for 400 iterations, because `s` is 8. With `s=1`, which is plain SGD,
it prints 400 and the same loss.
"""

import os

import torch
import torch.distributed as dist

from convoy.optim import CASGD, CASGDOptions

if "RANK" in os.environ:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
random = torch.Generator().manual_seed(0)  # The same rows and batches on all ranks.
features = torch.randn(1000, 64, generator=random)
targets = (features @ torch.randn(64, generator=random) > 0).float()

# Each rank passes its own columns: every second one of two ranks.
optimizer = CASGD(features[:, rank::world], targets, CASGDOptions(loss="logistic", lr=0.1, batch=16, s=8))
for _ in range(400):
    optimizer.step(torch.randint(0, 1000, (16,), generator=random))
optimizer.flush()  # Computes the iterations that wait for a full block of s.
calls = optimizer.collectives.traffic.calls
loss = optimizer.loss()
print(f"rank {rank}: loss {loss:.4f} after 400 iterations with {calls} all-reduces")
