"""Federated training on the ranks of a job. Each rank plays some clients; all ranks compute what the server
does.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

import convoy
from convoy_workloads.comm.collectives import Collectives, of_group
from convoy_workloads.engines.prelort.federation import Federation, task_of
from convoy_workloads.engines.prelort.generation import generated_score
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import pretrain
from convoy_workloads.engines.prelort.text import ByteText
from convoy_workloads.federated.aggregation import contributors
from convoy_workloads.runtime.exactness import fingerprint


def main() -> None:
    """Run one rank."""
    with convoy.join(Params) as job:
        train(job)


def train(job: convoy.Job[Params]) -> None:
    """Train the base model, then run the rounds, report and save them."""
    params = job.params
    # The clients compute on the processor, so their messages travel by gloo.
    collectives = of_group(dist.new_group(backend="gloo") if job.world > 1 else None)
    task = task_of(params)
    base = task.base()
    pretrain(base, task, params.pretrain_steps)
    share_base(base, collectives)
    federation = Federation(params, task, base)
    totals = {"stragglers": 0, "quarantined": 0, "lost_rounds": 0, "bytes_up": 0, "bytes_down": 0}
    lost = Lost()
    job.restore(model=nn.ModuleDict({"adapter": federation.adapter}), extra={"lost": lost})
    small, large = federation.levels.ranks[0], federation.levels.largest
    scores = [federation.evaluate(rank) for rank in (small, large)]
    for number in job.steps(params.steps):
        totals["bytes_down"] += federation.sent_bytes(number)
        asked = federation.chosen(number)
        clients = [client for client, _ in enumerate(params.clients) if f"client-{client:04d}" in asked]
        mine = clients[job.rank :: job.world]
        sent = [
            message for client in mine if (message := federation.train_client(client, number)) is not None
        ]
        outcome = federation.aggregate(number, collectives.gather_bytes(sent))
        lost.rounds = 0 if outcome.quorate else lost.rounds + 1
        if lost.rounds >= params.max_lost_rounds:
            raise convoy.DataError(
                f"round {number}: {lost.rounds} rounds one after the other had no quorum; the last had "
                f"{len(outcome.updates)} of {outcome.quorum} clients. Lower params.quorum, or raise "
                "params.round_timeout"
            )
        totals["stragglers"] += len(outcome.vanished)
        totals["quarantined"] += len(outcome.quarantined)
        totals["lost_rounds"] += not outcome.quorate
        totals["bytes_up"] += outcome.received_bytes
        if number % params.evaluate_every == 0 or number == params.steps:
            scores = [federation.evaluate(rank) for rank in (small, large)]
        metrics = {
            "accuracy_smallest_rank": scores[0].accuracy,
            "accuracy_largest_rank": scores[1].accuracy,
            "perplexity_largest_rank": math.exp(min(scores[1].loss, 50.0)),
            "clients_ok": len(outcome.updates),
            "contributors_largest_segment": contributors(federation.levels, outcome.updates)[large],
            **{f"{name}_total": value for name, value in totals.items()},
        }
        job.report(number, loss=scores[1].loss, samples=len(outcome.updates), metrics=metrics)
        job.checkpoint(number)
    job.set_result(results(federation, task, params.seed))
    if job.rank == 0:
        digest = fingerprint(federation.adapter, _NO_OPTIMIZER)
        print(f"state after step {params.steps}: sha256 {digest}", flush=True)


def results(federation: Federation, task: object, seed: int) -> dict[str, float]:
    """Return the scores of each rank at the end, for the job's result. Text also has ROUGE-L."""
    found = {}
    for rank in federation.levels.ranks:
        scored = federation.evaluate(rank)
        found[f"accuracy_{rank}"] = scored.accuracy
        found[f"perplexity_{rank}"] = math.exp(min(scored.loss, 50.0))
        if isinstance(task, ByteText):
            with federation.model(rank) as model:
                found[f"rouge_l_{rank}"] = generated_score(model, task.held_out_prose)
    return found


def share_base(base: nn.Module, collectives: Collectives) -> None:
    """Give all ranks the base model of rank 0, so that ranks on different processors have the same."""
    with torch.no_grad():
        for parameter in base.parameters():
            if collectives.rank:
                parameter.zero_()
            collectives.all_reduce(parameter)


class Lost:
    """The number of rounds without a quorum, one after the other, as part of a checkpoint."""

    def __init__(self) -> None:
        self.rounds = 0

    def state_dict(self) -> dict[str, int]:
        """Return the value to save."""
        return {"rounds": self.rounds}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take over a saved value."""
        self.rounds = int(state["rounds"])


_NO_OPTIMIZER = SimpleNamespace(state_dict=lambda: {"state": {}})
"""Clients start a new optimizer in each round, so there is nothing to compare."""


if __name__ == "__main__":
    main()
