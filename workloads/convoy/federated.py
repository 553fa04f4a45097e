"""Federated training of LoRA adapters whose ranks differ between clients, for programs with PyTorch.

```python
import torch
from convoy.federated import Levels, PrefixLoRA, Round, aggregate, collect, prefix

levels = Levels((2, 4, 8, 16))

def train_client(model, loader, rank, number, received):
    client = PrefixLoRA(model, rank, levels)  # a torch module, or one with LoRA of peft
    client.load(received)
    optimizer = torch.optim.Adam(client.parameters(), lr=1e-3)
    for inputs, targets in loader:
        loss = client.nested(lambda: loss_of(model(inputs), targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return client.update("client-3", number, samples=len(loader.dataset)).to_bytes()

asked = Round(number=7, clients={"client-3": 8}, levels=levels, shapes=server)
outcome = collect(receive, asked)
if outcome.quorate:
    server = aggregate("segment", levels, server, outcome.updates)
to_send = prefix(server, 8)
```

The transport is yours. This module needs torch. `import convoy` alone does not.
"""

from convoy_workloads.federated.adapters import PrefixLoRA
from convoy_workloads.federated.aggregation import Rule, aggregate, contributors
from convoy_workloads.federated.levels import Factors, Levels, prefix
from convoy_workloads.federated.rounds import Outcome, Round, collect
from convoy_workloads.federated.update import Update, UpdateError, from_bytes

__all__ = [
    "Factors",
    "Levels",
    "Outcome",
    "PrefixLoRA",
    "Round",
    "Rule",
    "Update",
    "UpdateError",
    "aggregate",
    "collect",
    "contributors",
    "from_bytes",
    "prefix",
]
