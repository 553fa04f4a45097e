"""An ordinary PyTorch training loop on samples of three sizes, with `convoy.data.AdaptiveBuckets`.

`torchrun --nproc-per-node=2 examples/adaptive_buckets.py` trains a small model. Batches are sized by the time
that a step takes, so that no rank waits long for the other. docs/loaders.md explains the options.
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

# A fit after 10 steps instead of 200, so that this short run shows the change of the table.
options = BucketOptions(memory_tokens=4096, window=60, refit_steps=10)
shown = -1
batches = AdaptiveBuckets(clips, lambda number: len(clips[number]), options, collate=torch.stack)
for epoch in range(2):
    for batch in batches:
        began = time.process_time()  # processor time: waiting for the other rank does not count
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), batch)
        (loss * batches.info.scale).backward()  # each sample of the step counts the same
        optimizer.step()
        batches.record(time.process_time() - began)
        if dist.get_rank() == 0 and batches.info.version != shown:
            shown = batches.info.version
            print(f"table {shown}: samples of a batch by size: {dict(batches.table.sizes)}")
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")
dist.destroy_process_group()
