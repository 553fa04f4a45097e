"""`make bench-tiercheck`: measures saves and restores, compared with plain copies and other libraries."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.bench.figures import Figures
from e2e.bench.tiercheck.saving import memory, peer, plain, profile, rows, upload
from e2e.cluster.progress import Progress

NAME, COMMAND = "tiercheck", "make bench-tiercheck"
PARAMETERS = 90_000_000
"""Number of the model's parameters. With AdamW's two moments in fp32, the state has 1.07 GB."""
ROUNDS = 10
STEP_SECONDS = (0.5, 2.0, 5.0)
"""Seconds of matrix products in a step. A step takes longer by the time of the optimizer."""
ALL = ("memory", "steps", "peer", "upload", "plain", "profile")


@dataclass(frozen=True)
class Options:
    """The parts to measure, and the sizes of model and steps."""

    only: Collection[str] = ALL
    parameters: int = PARAMETERS
    rounds: int = ROUNDS
    lengths: Sequence[float] = STEP_SECONDS


def bench(options: Options, figures: Figures) -> None:
    """Measure on this machine, with real agents and a rank in a separate process. Requires root."""
    asyncio.run(_bench(options, figures, Progress()))


async def _bench(options: Options, figures: Figures, progress: Progress) -> None:
    size = 12 * options.parameters
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        root = Path(name)
        if {"memory", "steps"} & set(options.only):
            lengths = options.lengths if "steps" in options.only else ()
            methods = "memory" in options.only
            found = await memory.measure(root, options.parameters, options.rounds, lengths, methods, progress)
            rows.add_memory_rows(found, figures)
        times = max(2, options.rounds // 3)
        if "peer" in options.only:
            progress.report("restoring from another node")
            rows.add_peer_rows(await peer.measure(root / "peer", size, times), figures)
        if "plain" in options.only:
            progress.report("copying and digesting with plain programs")
            rows.add_plain_rows(plain.measure(root / "plain", size, options.rounds), figures)
        if "profile" in options.only:
            progress.report("profiling a save and a restore")
            rows.add_profile_rows(await profile.measure(root / "profile", options.parameters), figures)
        if "upload" in options.only:
            progress.report("uploading")
            rows.add_upload_rows(await upload.measure(root / "upload", size, times, progress), figures)
