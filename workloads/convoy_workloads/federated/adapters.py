"""A client's adapter: LoRA on linear layers, whose first dimensions are useful without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.lora_layers import adapted_layers
from convoy_workloads.federated.update import Update


class _Backward(torch.autograd.Function):
    """The identity, which calls a function before the gradients of its input are computed."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, before: Callable[[], None]) -> Tensor:
        ctx.before = before
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.before()
        return gradient, None


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
        / rank does: else a prefix means something else to each client. `targets`: names of the layers that
        get adapters, or their last parts, such as `q_proj`; all linear layers by default. `adapter`: peft's
        name of the adapter. A module that has adapters already keeps them.

        Raises ValueError if `rank` is not one of `levels`, or differs from that of the module's adapters; if
        no layer has the name of a target; if the module is wrapped, as by DistributedDataParallel, which must
        come afterwards; and if peft would train more than the adapters of linear layers.
        """
        self.levels = levels
        self.rank = rank
        self._nested = levels.up_to(rank)
        self._limit = rank
        self._replayed: int | None = None
        """Limit for the forward passes that activation checkpointing repeats in a backward pass."""
        self._layers = adapted_layers(module, rank, scale, targets, adapter)
        for first, second in self._layers.values():
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
            # Activation checkpointing runs the forward pass again in the backward pass of this level.
            one = _Backward.apply(one, lambda rank=rank: self._replay(rank))  # type: ignore[no-untyped-call]
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

    def _replay(self, rank: int) -> None:
        """Use only the first `rank` dimensions, until the next level or the end of the backward pass."""
        self._replayed = rank
        Variable._execution_engine.queue_callback(self._end_replay)

    def _end_replay(self) -> None:
        self._replayed = None

    def _cut(self, layer: nn.Module, given: Any, out: Tensor) -> Tensor | None:
        # A failed backward pass does not end the replay, so the replay counts in backward passes only.
        in_backward = torch._C._current_graph_task_id() != -1
        limit = self._replayed if in_backward and self._replayed is not None else self._limit
        if limit >= self.rank:
            return None
        kept = torch.arange(self.rank, device=out.device) < limit
        return out * kept.to(out.dtype)
