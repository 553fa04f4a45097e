"""An ordinary PyTorch training loop whose batches `convoy.data.OnlineBatches` forms under a token budget.

`torchrun --nproc-per-node=2 examples/online_batches.py` trains a small model on texts of different lengths.
The loop itself is as it would be with a DataLoader. docs/loaders.md explains the options.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from convoy.data import OnlineBatches, OnlineOptions

dist.init_process_group("gloo")
torch.manual_seed(0)
# A sample is a dict of tensors. Padding is 0, and -100 for labels, which cross_entropy ignores.
lengths = torch.distributions.LogNormal(3.0, 0.8).sample((500,)).int().clamp(2, 256).tolist()
texts = [{"input_ids": ids, "labels": ids * 7 % 64} for ids in (torch.randint(1, 64, (n,)) for n in lengths)]
model = DistributedDataParallel(nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

batches = OnlineBatches(texts, OnlineOptions(tokens=1024))
batches.attach(model)  # the gradient is that of the mean over all tokens of all ranks
for epoch in range(2):
    for batch in batches:
        optimizer.zero_grad()
        logits = model(batch["input_ids"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.2f}, padding {batches.metrics()['padding_ratio']:.2f}")
dist.destroy_process_group()
