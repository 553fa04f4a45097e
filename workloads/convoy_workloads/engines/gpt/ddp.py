"""The baseline of gpt's bench: the same training as a plain program for torchrun, without Convoy's runtime.

The command is `torchrun --nproc-per-node=2 -m convoy_workloads.engines.gpt.ddp PARAMS`, with the parameters
as JSON.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.gpt.deterministic import be_deterministic
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.engines.gpt.schedule import learning_rate


def main() -> None:
    """Run one rank of the training."""
    params = Params.model_validate_json(sys.argv[1])
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device(f"cuda:{rank}") if torch.cuda.is_available() else torch.device("cpu")
    be_deterministic(device)
    corpus = data.load(int(params.data_megabytes * 1e6))
    torch.manual_seed(params.seed)
    if params.experts:
        raise SystemExit("experts: this baseline trains dense models only")
    model = DistributedDataParallel(GPT(params.context, params.layers, params.width, params.heads).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))
    for step in range(1, params.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, params)
        inputs, targets = data.batch(corpus.train, params.seed, step, rank, params.batch, params.context)
        logits = model(inputs.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # Read the loss, as a training loop does that logs it.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
