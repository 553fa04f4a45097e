"""A small pipeline-parallel program: RANKS / STAGES replicas of STAGES stages. It reports its layout in one
line.

Ranks of one stage do the same work, and the last stage has twice the work of any other. While the file
`slow` exists in FOLDER, rank SLOW computes half as long again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

import convoy

FOLDER = Path("/drill")
STAGES = int(os.environ.get("PIPELINE_STAGES", "4"))
SLOW = int(os.environ.get("PIPELINE_SLOW", "5"))
SECONDS = float(os.environ.get("PIPELINE_SECONDS", "0.04"))
"""Seconds that a pass of a stage takes. The stages sleep, so that they do not disturb one another."""
WIDTH = 64


def compute(rank: int, stage: int) -> None:
    """Take as long as one pass of this rank's stage."""
    slow = rank == SLOW and (FOLDER / "slow").exists()
    time.sleep(SECONDS * (2 if stage == STAGES - 1 else 1) * (1.5 if slow else 1))


def main() -> None:
    """Run one rank's endless training."""
    with convoy.join() as job:
        stage, replica = job.rank % STAGES, job.rank // STAGES
        job.report_layout(stage=stage, replica=replica)
        peers = [dist.new_group(range(one, job.world, STAGES)) for one in range(STAGES)][stage]
        values = torch.zeros(WIDTH)
        for step in job.steps(1_000_000):
            if stage > 0:
                dist.recv(values, job.rank - 1)
            compute(job.rank, stage)
            if stage < STAGES - 1:
                dist.send(values, job.rank + 1)
                dist.recv(values, job.rank + 1)
            compute(job.rank, stage)
            if stage > 0:
                dist.send(values, job.rank - 1)
            dist.all_reduce(values, group=peers)
            job.report(step)


if __name__ == "__main__":
    main()
