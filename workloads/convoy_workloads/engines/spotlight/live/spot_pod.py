"""The program of a pod of an Independent role: a Ray node with slots for workers."""

from __future__ import annotations

import os

from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.ray_cluster import token, worker
from convoy_workloads.ray_cluster.settings import default_folder
from convoy_workloads.runtime.params import check_params
from convoy_workloads.runtime.rank_context import from_environment

MEBIBYTE = 1024**2


def main() -> None:
    """Keep a node in the cluster of the job's rank 0 until SIGTERM."""
    params: Params = check_params(Params, from_environment(os.environ).params)
    worker.serve(
        worker.Options(
            head="",
            folder=default_folder(),
            slots=params.live.slots,
            store_bytes=params.live.store_mebibytes * MEBIBYTE,
            key=token.job_key(),
        )
    )
