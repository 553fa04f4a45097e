"""A client's adapter: LoRA on linear layers, whose first dimensions are useful without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.update import Update


class LoRALinear(nn.Module):
    """A frozen linear layer with an adapter: base(x) + scale * B(A(x))."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        self.scale = scale
        self.to(base.weight.device)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer with its adapter."""
        out: Tensor = self.base(x) + self.scale * self.lora_B(self.lora_A(x))
        return out


class PrefixLoRA:
    """The adapters of a module, trained so that each prefix of their dimensions works alone.

    ```python
    client = PrefixLoRA(model, rank=8, levels=Levels((2, 4, 8, 16)))
    optimizer = torch.optim.Adam(client.parameters(), lr=1e-3)
    client.load(received)  # the server's first 8 dimensions
    for inputs, targets in loader:  # the loop of any training
        loss = client.nested(lambda: loss_of(model(inputs), targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    send(client.update("client-3", number, samples=len(data)).to_bytes())
    ```

    `module` is a torch module, whose linear layers get adapters, or one that peft has prepared with LoRA. All
    other parameters are frozen.
    """

    def __init__(
        self,
        module: nn.Module,
        rank: int,
        levels: Levels,
        *,
        scale: float = 1.0,
        targets: Sequence[str] = (),
        adapter: str = "default",
    ) -> None:
        """`scale`: factor of the adapters, the same for all clients. It must not depend on the rank, as alpha
        / rank does: else a prefix means something else to each client. `targets`: ends of the names of layers
        that get adapters; all linear layers by default. `adapter`: peft's name of the adapter.

        Raises ValueError if `rank` is not one of `levels`, or differs from that of peft's adapters, and if no
        layer has the name of a target.
        """
        self.levels = levels
        self.rank = rank
        self._nested = levels.up_to(rank)
        self._limit = rank
        self._layers: dict[str, tuple[nn.Linear, nn.Linear]] = {}
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for name, layer in list(module.named_modules()):
            if found := _peft_layers(layer, adapter):
                layer.scaling[adapter] = scale
                self._layers[name] = found
        if not self._layers:
            self._layers = _wrap(module, rank, scale, targets)
        if not self._layers:
            raise ValueError(
                f"targets: no linear layer of the module ends in {', '.join(targets) or 'any name'}"
            )
        for name, (first, second) in self._layers.items():
            if first.out_features != rank:
                raise ValueError(f"rank: {rank}, but the adapter of {name} has rank {first.out_features}")
            first.weight.requires_grad_(True)
            second.weight.requires_grad_(True)
            first.register_forward_hook(self._cut)

    def parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of the adapters, for an optimizer."""
        for first, second in self._layers.values():
            yield first.weight
            yield second.weight

    @contextmanager
    def truncated(self, rank: int) -> Iterator[None]:
        """Let the module use only the first `rank` dimensions."""
        self.levels.up_to(rank)
        before, self._limit = self._limit, min(rank, self.rank)
        try:
            yield
        finally:
            self._limit = before

    def nested(self, loss: Callable[[], Tensor]) -> Tensor:
        """Return the mean of the loss over all levels up to this client's rank. `loss` runs the module once
        for each level.
        """
        total: Tensor | None = None
        for rank in self._nested:
            with self.truncated(rank):
                one = loss()
            total = one if total is None else total + one
        assert total is not None  # noqa: S101 - there is at least one level
        return total / len(self._nested)

    @torch.no_grad()
    def load(self, factors: Factors) -> None:
        """Take over the first dimensions of the server's adapters. Raises ValueError if they do not fit."""
        if factors.keys() != self._layers.keys():
            raise ValueError(f"factors: layers {sorted(factors)}, expected {sorted(self._layers)}")
        for name, (first, second) in self._layers.items():
            a, b = factors[name][0][: self.rank], factors[name][1][:, : self.rank]
            if a.shape != first.weight.shape or b.shape != second.weight.shape:
                raise ValueError(
                    f"factors: {name} has shapes {list(a.shape)} and {list(b.shape)}, too few dimensions"
                )
            first.weight.copy_(a)
            second.weight.copy_(b)

    def factors(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return copies of the adapters."""
        return {
            name: (first.weight.detach().clone(), second.weight.detach().clone())
            for name, (first, second) in self._layers.items()
        }

    def update(self, client: str, number: int, samples: int) -> Update:
        """Return the message to the server after round `number`."""
        return Update(client, number, self.rank, samples, self.factors())

    def _cut(self, layer: nn.Module, given: Any, out: Tensor) -> Tensor | None:
        if self._limit >= self.rank:
            return None
        kept = torch.arange(self.rank, device=out.device) < self._limit
        return out * kept.to(out.dtype)


def _peft_layers(layer: nn.Module, adapter: str) -> tuple[nn.Linear, nn.Linear] | None:
    """Return A and B of a layer that peft has made; None for other layers."""
    first, second = getattr(layer, "lora_A", None), getattr(layer, "lora_B", None)
    if not (isinstance(first, nn.ModuleDict) and isinstance(second, nn.ModuleDict) and adapter in first):
        return None
    a, b = first[adapter], second[adapter]
    return (a, b) if isinstance(a, nn.Linear) and isinstance(b, nn.Linear) else None


def _wrap(
    module: nn.Module, rank: int, scale: float, targets: Sequence[str]
) -> dict[str, tuple[nn.Linear, nn.Linear]]:
    """Replace the module's linear layers by ones with an adapter. Return A and B by name of the layer."""
    found = {}
    for name, layer in list(module.named_modules()):
        if not isinstance(layer, nn.Linear) or (targets and not name.endswith(tuple(targets))):
            continue
        parent, _, last = name.rpartition(".")
        made = LoRALinear(layer, rank, scale)
        setattr(module.get_submodule(parent), last, made)
        found[name] = (made.lora_A, made.lora_B)
    return found
