"""Training of a generalized linear model by CA-SGD on the ranks of a job."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import convoy
from convoy_workloads.comm.collectives import Collectives, of_group
from convoy_workloads.engines.casgd import data
from convoy_workloads.engines.casgd.params import Params
from convoy_workloads.optim.casgd import CASGD, CASGDOptions, Diverged, GlmDataError
from convoy_workloads.optim.precision import with_choices
from convoy_workloads.runtime.exactness import fingerprint


class Glm(nn.Module):
    """The weights of all columns. Each rank trains its own columns in place; the others are copies."""

    weight: Tensor

    def __init__(self, columns: int, dtype: torch.dtype, own: slice) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(columns, dtype=dtype))
        self._own = own

    @property
    def own(self) -> Tensor:
        """Return this rank's columns, as a view."""
        return self.weight[self._own]

    def gather(self, collectives: Collectives) -> None:
        """Get the columns of the other ranks. So a checkpoint has all, and another number of ranks can go
        on.
        """
        mine = self.own.clone()
        self.weight.zero_()
        self.own.copy_(mine)
        collectives.all_reduce(self.weight)


def main() -> None:
    """Run one rank of the training."""
    with convoy.join(Params) as job:
        train(job)


def train(job: convoy.Job[Params]) -> None:
    """Restore the weights, then train them, report the steps and save checkpoints."""
    params = job.params
    with job.loading():
        problem = data.load(params)
    rows, columns = problem.features.shape
    own = data.columns_of(job.rank, job.world, columns, params.partition)
    precision = with_choices(params.precision, params.choices)
    group = linked(params) if job.world > 1 else None
    checks = of_group(group)
    # Emulated links carry tensors of the processor only.
    device = torch.device("cpu") if group is not None else job.device
    model = Glm(columns, precision.weight, own).to(device)
    options = CASGDOptions(
        loss=params.loss,
        lr=params.lr,
        l2=params.l2,
        batch=params.batch,
        s=params.s,
        precision=precision,
    )
    try:
        optimizer = CASGD(
            problem.features[:, own].to(device),
            problem.targets.to(device),
            options,
            weights=model.own,
            collectives=of_group(group),
        )
    except GlmDataError as error:
        raise convoy.DataError(str(error)) from error
    optimizer.s = min(optimizer.s, params.iterations)
    job.restore(model=model, extra={"block": BlockSize(optimizer)})
    full_loss = measure(optimizer, checks)
    for step in job.steps(params.steps):
        try:
            iterate(optimizer, params, rows, step)
        except Diverged as error:
            raise convoy.DataError(f"step {step}: {error}") from error
        model.gather(checks)
        if step % params.evaluate_every == 0 or step == params.steps:
            full_loss = measure(optimizer, checks)
        traffic = optimizer.collectives.traffic
        metrics = {
            "collectives_total": traffic.calls,
            "comm_bytes_total": traffic.payload_bytes,
            "comm_seconds": traffic.seconds,
            "gram_seconds": optimizer.gram_seconds,
            "chosen_s": optimizer.s,
            "full_loss": full_loss,
        }
        samples = params.batch * params.iterations
        job.report(step, loss=optimizer.batch_loss, samples=samples, metrics=metrics)
        job.checkpoint(step)
    job.set_result({"full_loss": full_loss, "chosen_s": optimizer.s})
    if job.rank == 0:
        print(f"state after step {params.steps}: sha256 {fingerprint(model, optimizer)}", flush=True)


def iterate(optimizer: CASGD, params: Params, rows: int, step: int) -> None:
    """Run the iterations of a step, up to the last one. All ranks call this."""
    first = (step - 1) * params.iterations
    for iteration in range(first, first + params.iterations):
        batch = data.batch(params.seed, iteration, rows, params.batch)
        optimizer.step(batch)
    optimizer.flush()


def measure(optimizer: CASGD, checks: Collectives) -> float:
    """Return the mean loss over all rows. Its all-reduce does not count as traffic of the training."""
    training, optimizer.collectives = optimizer.collectives, checks
    try:
        found = optimizer.loss()
    finally:
        optimizer.collectives = training
    if not math.isfinite(found):
        raise convoy.DataError("the loss is not finite: use a lower params.lr, or scale the targets")
    return found


def linked(params: Params) -> Any:
    """Return a process group over emulated links; None for the real network."""
    if not params.link_latency_ms and not params.link_mbit_per_second:
        return None
    from convoy_workloads.comm.linked_group import Emulation, new_group  # noqa: PLC0415
    from convoy_workloads.comm.links import Link, Links  # noqa: PLC0415

    rate = params.link_mbit_per_second * 1e6 / 8 or math.inf
    return new_group(Emulation(Links(Link(rate, params.link_latency_ms / 1e3))))


class BlockSize:
    """The number of iterations for one all-reduce, as part of a checkpoint. A restored run must group the
    iterations like the run before, to end with the same bits.
    """

    def __init__(self, optimizer: CASGD) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, int]:
        """Return the value to save."""
        return {"s": self._optimizer.s}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take over a saved value."""
        self._optimizer.s = int(state["s"])


if __name__ == "__main__":
    main()
