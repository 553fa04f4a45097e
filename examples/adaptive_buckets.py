"""An ordinary PyTorch training loop on samples of three sizes, with `convoy.data.AdaptiveBuckets`.

`torchrun --nproc-per-node=2 examples/adaptive_buckets.py` trains a small model. Batches are sized by the time
that a step takes, so that no rank waits long for the other.
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from convoy.data import AdaptiveBuckets, BucketOptions

dist.init_process_group("gloo")
torch.manual_seed(0)
clips = [torch.randn((64, 256, 1024)[number % 3], 16) for number in range(240)]
model = DistributedDataParallel(nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, batch_first=True))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

options = BucketOptions(memory_tokens=4096, window=60, refit_steps=10)
batches = AdaptiveBuckets(clips, lambda number: len(clips[number]), options, collate=torch.stack)
for batch in batches:
    began = time.process_time()  # processor time: waiting for the other rank does not count
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch), batch) * batches.info.scale
    loss.backward()
    optimizer.step()
    batches.record(time.process_time() - began)
if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}, samples of a batch by size: {dict(batches.table.sizes)}")
dist.destroy_process_group()
