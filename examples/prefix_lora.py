"""Four clients with LoRA adapters of ranks 2, 2, 4 and 8, and their server, in one process:
`python examples/prefix_lora.py`. It takes a few seconds, and prints the error of the server's model at each
rank.
"""

import torch
from torch import nn

from convoy.federated import Levels, PrefixLoRA, Round, aggregate, collect, prefix

levels, clients = Levels((2, 4, 8)), {"a": 2, "b": 2, "c": 4, "d": 8}
random = torch.Generator().manual_seed(0)
truth = torch.randn(16, 16, generator=random)
inputs = {name: torch.randn(64, 16, generator=random) for name in clients}
torch.manual_seed(0)
models = {name: nn.Sequential(nn.Linear(16, 16)) for name in clients}
for model in models.values():  # All clients have the same base model.
    model.load_state_dict(models["d"].state_dict())
adapters = {name: PrefixLoRA(models[name], rank, levels) for name, rank in clients.items()}
server = adapters["d"].factors()  # The server starts with adapters of the largest rank.


def loss_of(name: str) -> torch.Tensor:
    """Return the mean error of a client's model."""
    return (models[name](inputs[name]) - inputs[name] @ truth).square().mean()


for number in range(1, 21):
    # The clients: each gets the first dimensions of the server's adapters, trains, and sends a message.
    messages = []
    for name, rank in clients.items():
        adapters[name].load(prefix(server, rank))
        optimizer = torch.optim.Adam(adapters[name].parameters(), lr=0.02)
        for _ in range(5):  # The loop of any training; only the loss is wrapped.
            loss = adapters[name].nested(lambda: loss_of(name))  # noqa: B023
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        messages.append(adapters[name].update(name, number, samples=64).to_bytes())
    # The server: a list stands in for the network. With a network, receive(seconds) waits for a message.
    asked = Round(number=number, clients=clients, levels=levels, shapes=server)
    outcome = collect(lambda _seconds, left=messages: left.pop() if left else None, asked)
    if outcome.quorate:
        server = aggregate("segment", levels, server, outcome.updates)
adapters["d"].load(server)
losses = {}
for rank in levels.ranks:
    with adapters["d"].truncated(rank), torch.no_grad():
        losses[rank] = loss_of("d").item()
    print(f"error with the first {rank} dimensions: {losses[rank]:.3f}")
