"""An optimizer for generalized linear models whose columns are spread over ranks, for programs with PyTorch.

```python
import torch, torch.distributed as dist
import convoy
from convoy.optim import CASGD, CASGDOptions

with convoy.join() as job:
    mine = slice(job.rank * columns // job.world, (job.rank + 1) * columns // job.world)
    options = CASGDOptions(loss="logistic", lr=0.05, batch=16)
    optimizer = CASGD(features[:, mine], targets, options)
    for step in job.steps(1000):
        rows = torch.randint(0, len(targets), (16,), generator=torch.Generator().manual_seed(step))
        optimizer.step(rows)  # the same rows on all ranks
        job.report(step, loss=optimizer.batch_loss)
    print(optimizer.weights)  # of this rank's columns
```

`CASGD` computes what SGD computes, with one all-reduce for `s` iterations. This module needs torch.
`import convoy` alone does not.
"""

from convoy_workloads.optim.block_size import message_bytes
from convoy_workloads.optim.casgd import CASGD, CASGDOptions, Diverged, GlmDataError
from convoy_workloads.optim.precision import FP32, FP64, MIXED, Precision

__all__ = [
    "CASGD",
    "FP32",
    "FP64",
    "MIXED",
    "CASGDOptions",
    "Diverged",
    "GlmDataError",
    "Precision",
    "message_bytes",
]
