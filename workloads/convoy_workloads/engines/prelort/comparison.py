"""Trainings of the federation without a job, for comparisons of the server's rules."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from convoy_workloads.engines.prelort.federation import Federation, task_of
from convoy_workloads.engines.prelort.generation import generated_score
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import Task, pretrain
from convoy_workloads.engines.prelort.text import ByteText
from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.update import Update

PROCESSOR = "processor time of the rounds"
Server = Callable[[Levels, Factors, Sequence[Update]], dict[str, tuple[Tensor, Tensor]]]


def play(params: Params, server: Server | None = None, equal_passes: bool = False) -> Mapping[str, float]:
    """Run all rounds with all clients in this process. Return the scores, the bytes, the clients' passes, and
    the processor seconds of the rounds without evaluations.

    `server`: another rule than that of the parameters. `equal_passes`: see `Federation`.
    """
    torch.set_num_threads(1)
    task = task_of(params)
    federation = Federation(params, task, base(params, task), server=server, equal_passes=equal_passes)
    up = down = 0
    began = time.process_time()
    for number in range(1, params.steps + 1):
        down += federation.sent_bytes(number)
        clients = [client for client, _ in enumerate(params.clients)]
        messages = [federation.train_client(client, number) for client in clients]
        up += federation.aggregate(number, [one for one in messages if one is not None]).received_bytes
    seconds = time.process_time() - began
    found: dict[str, float] = {"bytes up": up, "bytes down": down}
    found |= {"passes": federation.passes, PROCESSOR: seconds}
    for rank in federation.levels.ranks:
        scored = federation.evaluate(rank)
        found[f"accuracy, rank {rank}"] = scored.accuracy
        found[f"perplexity, rank {rank}"] = math.exp(scored.loss)
        if isinstance(task, ByteText) and rank in (federation.levels.ranks[0], federation.levels.largest):
            with federation.model(rank) as model:
                found[f"ROUGE-L, rank {rank}"] = generated_score(model, task.held_out_prose)
    return found


def base(params: Params, task: Task) -> nn.Module:
    """Return the trained base model. Arms with the same seed share its training."""
    return copy.deepcopy(_trained(params.task, params.seed, params.pretrain_steps, _Held(task)))


class _Held:
    """A task that is no part of the cache's key, because the other arguments decide on it."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=1)
def _trained(task: str, seed: int, steps: int, held: _Held) -> nn.Module:
    model = held.task.base()
    pretrain(model, held.task, steps)
    return model


def mean_scores(
    params: Mapping[str, Any], seeds: Sequence[int], equal_passes: bool = False
) -> dict[str, float]:
    """Return the mean scores over the seeds. It is an arm of the engine's bench."""
    given = [Params.model_validate({**params, "seed": seed}) for seed in seeds]
    runs = [play(one, equal_passes=equal_passes) for one in given]
    return {name: fmean(run[name] for run in runs) for name in runs[0]}
