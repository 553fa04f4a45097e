"""The loop of the engine spotlight. Each step is one iteration: rollouts, then training and exploring."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor

import convoy
from convoy_workloads.engines.spotlight.iteration import IterationReport
from convoy_workloads.engines.spotlight.learning.grpo import Ranks
from convoy_workloads.engines.spotlight.live import connection as live
from convoy_workloads.engines.spotlight.live import spot_pod
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.request_counts import to_metrics
from convoy_workloads.engines.spotlight.simulated.run import Run, StartWorkers, simulated_workers
from convoy_workloads.ray_cluster.worker import MEMBERS_FILE
from convoy_workloads.runtime.exactness import fingerprint


class RunState:
    """The state of a run in a checkpoint. It is applied after the weights are restored."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._saved: Mapping[str, Any] | None = None

    def state_dict(self) -> dict[str, bytes]:
        """Return the state of the run."""
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep a saved state for `apply`."""
        self._saved = dict(state)

    def apply(self) -> None:
        """Set the saved state, if there is one."""
        if self._saved is not None:
            self._run.load_state_dict(self._saved)


def main() -> None:
    """Run one rank of the training, or a worker in a pod of an Independent role."""
    if MEMBERS_FILE in os.environ:
        spot_pod.main()
        return
    with convoy.join(Params) as job:
        if job.params.workers == "ray":
            with live.connect(job.params, job.world, job.report_notice) as start:
                train(job, start)
        else:
            train(job)


def train(job: convoy.Job[Params], start: StartWorkers = simulated_workers) -> None:
    """Restore the run, then carry out the iterations. All ranks follow the same simulated workers, and each
    one computes the gradients of a part of the groups.
    """
    run = Run(job.params, Ranks(job.rank, job.world, _add_up) if job.world > 1 else Ranks(), start)
    state = RunState(run)
    # No pass depends on earlier ones, so there is nothing to warm up.
    job.restore(model=run.policy, optimizer=run.trainer.optimizer, extra={"run": state}, warm=lambda: None)
    state.apply()
    for step in job.steps(job.params.steps):
        report = run.iterate()
        loss = report.update.loss if report.update else None
        job.report(step, loss=loss, samples=report.trained, metrics=metrics(run, report))
        job.checkpoint(step)
    result = {**run.figures(), "trainedSamples": run.loop.trained, "requests": run.ledger.counts()}
    job.set_result(result)
    if job.rank == 0:
        print(f"state after step {job.params.steps}: sha256 {fingerprint(run.policy, run.trainer.optimizer)}")


def metrics(run: Run, report: IterationReport) -> dict[str, float]:
    """Return the engine's own metrics of an iteration."""
    figures = run.figures()
    return {
        "held_out_reward": run.held_out(),
        "zero_contrast_ratio": report.update.zero_contrast if report.update else 1.0,
        "explored_seeds": report.explored,
        "rank_correlation": 1.0 if report.correlation is None else report.correlation,
        "stale_trips": report.stale_trips,
        "idle_spot_ratio": figures["idleRatio"],
        "spend": figures["cost"],
        "trained_samples": run.loop.trained,
        **_live_metrics(run),
        **to_metrics(run.ledger.counts()),
    }


def _live_metrics(run: Run) -> dict[str, float]:
    """Return the metrics that only real workers have; 0 for simulated ones."""
    workers = run.workers
    failed, unobserved = (
        (workers.failures, workers.unobserved) if isinstance(workers, LiveWorkers) else (0, 0.0)
    )
    return {"workers_failed": failed, "unobserved_seconds": unobserved}


def _add_up(tensor: Tensor) -> None:
    """Replace a tensor by its sum over all ranks."""
    dist.all_reduce(tensor)


if __name__ == "__main__":
    main()
