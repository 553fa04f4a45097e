"""The connection of a run to real workers: the head of Ray, the actors, and the worker beside the trainer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from convoy_workloads.engines.spotlight.learning.models import problem_of, untrained_policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.live.cluster import LocalClient, LocalWorker
from convoy_workloads.engines.spotlight.live.computation import Walks
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.live.messages import Weights
from convoy_workloads.engines.spotlight.live.ray_actors import RayCluster
from convoy_workloads.engines.spotlight.live.spot_actor import Recipe
from convoy_workloads.engines.spotlight.live.spot_pod import MEBIBYTE
from convoy_workloads.engines.spotlight.live.weights import Policies
from convoy_workloads.engines.spotlight.live.worker import ANSWER_SECONDS
from convoy_workloads.engines.spotlight.params import GridProblem, Params
from convoy_workloads.engines.spotlight.simulated.run import StartWorkers
from convoy_workloads.ray_cluster import token
from convoy_workloads.ray_cluster.drain_reports import Report
from convoy_workloads.ray_cluster.head import Head
from convoy_workloads.ray_cluster.settings import default_folder
from convoy_workloads.spot.ledger.requests import RequestLedger

ON_DEMAND = "on-demand"
"""Name of the worker in the trainer's process."""


@contextmanager
def connect(params: Params, world: int, report_notice: Report | None = None) -> Iterator[StartWorkers]:
    """Start the head. Yield a function that starts the workers of a run. `report_notice`: see `Head`.

    Raises ValueError for several ranks.
    """
    if world > 1:
        raise ValueError(f"params.workers: ray needs one trainer rank, but the job has {world}")
    head = Head(
        os.environ.get("MASTER_ADDR", ""),
        default_folder(),
        token.job_key(),
        params.live.store_mebibytes * MEBIBYTE,
        report_notice=report_notice,
    )
    with ExitStack() as stack:
        stack.enter_context(head)
        # Only the transformer of the problem grid has tokens to split.
        degrees = params.sequence_parallel if isinstance(params.problem, GridProblem) else (1,)
        cluster = RayCluster(head, recipe(params), degrees)
        cluster.start()

        def start(given: Params, ledger: RequestLedger) -> LiveWorkers:
            own = on_demand_worker(given)
            workers = LiveWorkers(ledger, cluster, own, given)
            own.start()
            stack.callback(workers.close)
            return workers

        yield start


def recipe(params: Params) -> Recipe:
    """Return what the workers of a job need to know."""
    sampler = Sampler(params.sampler_steps, params.sigma, problem_of(params.problem).size)
    seconds = params.cluster.sample_seconds / params.sampler_steps * params.live.pace
    return Recipe(params.problem, sampler, params.selection, params.live.capacity, seconds)


def on_demand_worker(params: Params) -> LocalWorker:
    """Return the worker that serves requests in the trainer's process while nothing is trained."""
    found = recipe(params)

    def walks(client: LocalClient) -> Walks:
        policies = Policies(
            lambda: untrained_policy(found.problem),
            lambda version: client.call(Weights(version), ANSWER_SECONDS),
        )
        return Walks(
            found.sampler, problem_of(found.problem), found.selection, policies.of, found.step_seconds
        )

    return LocalWorker(ON_DEMAND, walks, found.capacity)
