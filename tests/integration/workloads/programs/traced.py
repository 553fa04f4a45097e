"""A rank of a DDP training with gloo that records two steps. Arguments: rank, folders of rendezvous and
traces. Rank 1 is slow, so rank 0 waits for it in each step. The rank prints its report as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from convoy_workloads.traces.record import record

SLOW_SECONDS = 0.25
RECORDED = range(3, 5)


def main() -> None:
    rank, rendezvous, traces = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}/store", rank=rank, world_size=2)
    control = dist.new_group(backend="gloo")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.015)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    with record(traces, RECORDED, rank=rank) as recorder:
        for step in range(1, 6):
            with recorder.step(step):
                loss = parallel(torch.randn(8, 32)).square().mean()
                if rank == 1 and step in RECORDED:
                    time.sleep(SLOW_SECONDS)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                dist.all_reduce(torch.ones(3), group=control)
    parameters = sum(one.numel() for one in model.parameters())
    print(json.dumps({"parameters": parameters, "problem": recorder.problem}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
