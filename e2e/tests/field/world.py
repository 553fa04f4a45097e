"""Prints its rank and world size."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank, world = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of world {world}: sum {total.item():.0f} argv {sys.argv[1:]}", flush=True)
dist.barrier()
dist.destroy_process_group()
