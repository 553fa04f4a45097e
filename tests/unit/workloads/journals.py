"""A small training, its journal on any number of ranks, and helpers that compare two trainings bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from convoy_workloads.runtime.journal.gradient_recorder import GradientRecorder
from convoy_workloads.runtime.journal.partition import partition
from convoy_workloads.runtime.journal.segment import Segment
from convoy_workloads.runtime.journal.segment_reader import read

Make = Callable[[Any], torch.optim.Optimizer]
ROOM = 200_000


class Net(nn.Module):
    """A model with an embedding and two heads. Each step uses only a few rows of the embedding, and only
    every second step uses the second head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(300, 8)
        self.norm = nn.LayerNorm(8)
        self.one = nn.Linear(8, 19)
        self.two = nn.Linear(19, 5)
        self.other = nn.Linear(19, 5)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens: torch.Tensor, other: bool) -> torch.Tensor:
        hidden = torch.tanh(self.one(self.norm(self.embed(tokens))))
        return (self.other if other else self.two)(hidden)  # type: ignore[no-any-return]


def groups(net: nn.Module) -> list[dict[str, Any]]:
    """Return two groups: parameters with weight decay and parameters without."""
    return [
        {"params": [one for one in net.parameters() if one.dim() > 1], "weight_decay": 0.1},
        {"params": [one for one in net.parameters() if one.dim() < 2], "weight_decay": 0.0},
    ]


class Training:
    """A model with an optimizer, whose steps clip gradients and change learning rates as a scheduler does."""

    def __init__(self, make: Make, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.net = Net().to(dtype)
        self.optimizer = make(groups(self.net))
        self.generator = torch.Generator().manual_seed(seed + 1)
        self.done = 0
        # torch's fused SGD rejects a parameter's first gradient if other parameters already have momentum. So
        # a training with fused SGD and momentum does not use the second head.
        first = self.optimizer.param_groups[0]
        self.alternating = not (first.get("fused") and first.get("momentum"))

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        return dict(self.net.named_parameters())

    def backward(self) -> None:
        tokens = torch.randint(0, 300, (4,), generator=self.generator)
        loss = self.net(tokens, self.alternating and bool(self.done % 2)).float().square().sum()
        loss.backward()

    def step(self) -> None:
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] = (0.01 + 0.001 * number) / (1 + self.done / 7)
        self.optimizer.zero_grad()
        self.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        self.done += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def twin(self, make: Make, dtype: torch.dtype = torch.float32) -> Training:
        """Return a copy of this training with its own objects, as in another process."""
        other = Training(make, dtype, seed=99)
        other.net.load_state_dict(copy.deepcopy(self.net.state_dict()))
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        return other


class Journal:
    """The recorders of all ranks, which see the same gradients, and the segments that they sealed."""

    def __init__(self, training: Training, world: int = 1, room: int = ROOM, **more: Any) -> None:
        self.recorders = [
            GradientRecorder(
                training.optimizer, partition(training.parameters, rank, world), rank, world, **more
            )
            for rank in range(world)
        ]
        self.room = room
        self.bytes: list[bytearray] = []
        for one in self.recorders:
            one.start("base")
        self.open_segments()

    def open_segments(self) -> None:
        self._open = [bytearray(b"\xa5" * self.room) for _ in self.recorders]
        for one, target in zip(self.recorders, self._open, strict=True):
            one.open_segment(memoryview(target))

    def seal(self) -> list[int]:
        sizes = [one.seal({"a": "1"}, {"step": one.steps}) for one in self.recorders]
        self.bytes += [target[:size] for target, size in zip(self._open, sizes, strict=True)]
        return sizes

    def next(self) -> None:
        self.seal()
        self.open_segments()

    @property
    def segments(self) -> list[Segment]:
        return [read(memoryview(one)) for one in self.bytes]


def bits(training: Training) -> dict[str, Any]:
    """Return every parameter, every optimizer state and every scalar of a training, to compare their bits."""
    found: dict[str, Any] = {name: raw(one) for name, one in training.parameters.items()}
    for name, one in training.parameters.items():
        for key, value in training.optimizer.state.get(one, {}).items():
            found[f"{name}.{key}"] = raw(value) if isinstance(value, torch.Tensor) else value
    for number, group in enumerate(training.optimizer.param_groups):
        found[f"group {number}"] = {key: value for key, value in group.items() if key != "params"}
    return found


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


class Lion(torch.optim.Optimizer):
    """An optimizer that is not torch's and that updates each element independently (arXiv 2302.06675)."""

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.0})

    def step(self, closure: Any = None) -> Any:
        self.update()

    @torch.no_grad()
    def update(self) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                average = state.setdefault("exp_avg", torch.zeros_like(one))
                first, second = group["betas"]
                one.mul_(1 - group["lr"] * group["weight_decay"])
                one.add_((average * first + one.grad * (1 - first)).sign_(), alpha=-group["lr"])
                average.mul_(second).add_(one.grad, alpha=1 - second)


class Muon(torch.optim.SGD):
    """An optimizer whose update of an element depends on the whole matrix, so that its steps must not be
    replayed.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None and one.dim() == 2:
                    one.sub_(one.grad / (one.grad.norm() + 1e-6), alpha=group["lr"])
