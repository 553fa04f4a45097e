"""The federation: what a client does in a round, and what the server does with the messages."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor, nn

from convoy_workloads.engines.prelort.digits import Digits
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import Score, Task, loss_of, score
from convoy_workloads.engines.prelort.text import ByteText
from convoy_workloads.federated.adapters import PrefixLoRA
from convoy_workloads.federated.aggregation import aggregate
from convoy_workloads.federated.levels import Factors, Levels, prefix
from convoy_workloads.federated.rounds import Outcome, Round, collect
from convoy_workloads.federated.update import Update


def task_of(params: Params) -> Task:
    """Return the task."""
    return ByteText(params) if params.task == "text" else Digits(params)


class GlobalAdapter(nn.Module):
    """The server's adapters, with the largest rank."""

    def __init__(self, factors: Factors) -> None:
        super().__init__()
        self._names = list(factors)
        for number, (a, b) in enumerate(factors.values()):
            self.register_buffer(f"a{number}", a.clone())
            self.register_buffer(f"b{number}", b.clone())

    @property
    def factors(self) -> Factors:
        """Return the adapters."""
        return {
            name: (self.get_buffer(f"a{number}"), self.get_buffer(f"b{number}"))
            for number, name in enumerate(self._names)
        }

    def replace(self, factors: Factors) -> None:
        """Take over other adapters."""
        for name, (a, b) in self.factors.items():
            a.copy_(factors[name][0])
            b.copy_(factors[name][1])


@dataclass
class Player:
    """A model with adapters of one rank, which plays all clients of this rank in turn."""

    model: nn.Module
    adapter: PrefixLoRA


class Federation:
    """The clients and the server of one job."""

    def __init__(
        self,
        params: Params,
        task: Task,
        base: nn.Module,
        clock: Callable[[], float] = time.monotonic,
        server: Callable[..., Factors] | None = None,
        equal_passes: bool = False,
    ) -> None:
        """`server`: a rule of levels, adapters and updates, instead of that of the parameters.
        `equal_passes`: clients without nesting run as many more steps as nested ones run more passes in a
        step, so that comparisons are at equal work.
        """
        self._server = server or partial(aggregate, params.aggregation)
        self._params = params
        self._task = task
        self._clock = clock
        self._equal_passes = equal_passes
        self.passes = 0
        """Forward and backward passes of all clients so far."""
        self.levels = Levels(tuple(params.ranks))
        self._players = {rank: self._player(base, rank) for rank in params.ranks}
        self.adapter = GlobalAdapter(self._players[self.levels.largest].adapter.factors())

    def _player(self, base: nn.Module, rank: int) -> Player:
        torch.manual_seed(self._params.seed)
        model = copy.deepcopy(base)
        return Player(model, PrefixLoRA(model, rank, self.levels, targets=self._task.targets))

    def chosen(self, number: int) -> dict[str, int]:
        """Return the clients of a round with their ranks."""
        params = self._params
        everyone = range(len(params.clients))
        if params.clients_per_round:
            random = np.random.default_rng((params.seed, 30, number))
            drawn = random.choice(len(everyone), params.clients_per_round, replace=False)
            everyone = sorted(int(one) for one in drawn)  # type: ignore[assignment]
        return {name_of(client): params.clients[client] for client in everyone}

    def train_client(self, client: int, number: int) -> bytes | None:
        """Train a client, and return its message. Return None if it takes longer than the round."""
        params, task = self._params, self._task
        fault = self._fault(client, number)
        if fault == "vanish":
            return None
        rank, deadline = params.clients[client], self._clock() + params.round_timeout
        player = self._players[rank]
        player.adapter.load(prefix(self.adapter.factors, rank))
        optimizer = torch.optim.Adam(player.adapter.parameters(), lr=params.lr)
        levels = sum(one <= rank for one in self.levels.ranks)
        more = levels if self._equal_passes and not params.nested else 1
        for step in range(params.local_steps * more):
            if self._clock() > deadline:
                return None
            batch = task.batch(client, number, step, params.batch)

            def loss(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
                return loss_of(player.model, batch)

            value = player.adapter.nested(loss) if params.nested else loss()
            self.passes += levels if params.nested else 1
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        update = player.adapter.update(name_of(client), number, task.samples(client))
        return _broken(update, fault).to_bytes()

    def aggregate(self, number: int, messages: Sequence[bytes]) -> Outcome:
        """Use the messages of a round, if there is a quorum. Return what became of them."""
        queue: SimpleQueue[bytes] = SimpleQueue()
        for one in messages:
            queue.put(one)
        asked = Round(
            number=number,
            clients=self.chosen(number),
            levels=self.levels,
            shapes=self.adapter.factors,
            quorum=self._params.quorum,
            timeout=math.inf,  # All messages are there: the clients have kept the time themselves.
            samples={
                name_of(client): self._task.samples(client) for client in range(len(self._params.clients))
            },
        )
        outcome = collect(lambda _: None if queue.empty() else queue.get(), asked)
        if outcome.quorate:
            self.adapter.replace(self._server(self.levels, self.adapter.factors, outcome.updates))
        return outcome

    def sent_bytes(self, number: int) -> int:
        """Return the bytes that the server sends at the start of a round: each client's prefix."""
        return sum(
            one.numel() * one.element_size()
            for rank in self.chosen(number).values()
            for pair in prefix(self.adapter.factors, rank).values()
            for one in pair
        )

    def evaluate(self, rank: int) -> Score:
        """Evaluate the first `rank` dimensions of the server's adapters on held-out data."""
        with self.model(rank) as model:
            return score(model, self._task.held_out())

    def model(self, rank: int) -> _Truncated:
        """Return a context with the model that uses the first `rank` dimensions of the server's adapters."""
        player = self._players[self.levels.largest]
        player.adapter.load(self.adapter.factors)
        return _Truncated(player, rank)

    def _fault(self, client: int, number: int) -> str:
        for fault in self._params.faults:
            if fault.client == client and fault.round <= number < fault.round + fault.rounds:
                return fault.kind
        return ""


class _Truncated:
    """A context in which a model uses a prefix of its adapters."""

    def __init__(self, player: Player, rank: int) -> None:
        self._player = player
        self._context = player.adapter.truncated(rank)

    def __enter__(self) -> nn.Module:
        self._context.__enter__()
        return self._player.model

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


def name_of(client: int) -> str:
    """Return the name of a client. Names sort like the numbers."""
    return f"client-{client:04d}"


def _broken(update: Update, fault: str) -> Update:
    if fault == "unknown-rank":
        return replace(update, rank=update.rank + 1)
    if fault == "other-round":
        return replace(update, round=update.round - 1)
    if fault == "nan":
        for a, _ in update.factors.values():
            a.fill_(math.nan)
    return update
