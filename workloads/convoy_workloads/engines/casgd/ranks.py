"""Runs a function on two ranks of this machine, over gloo's loopback or over emulated links."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from convoy_workloads.comm.linked_group import init
from convoy_workloads.comm.links import Link, Links

WORLD = 2
TIMEOUT = timedelta(seconds=120)


def on_ranks(function: Callable[..., Any], *arguments: Any, latency: float = 0.0) -> Any:
    """Call a function of a module on each rank. Return the result of rank 0, which must fit into JSON.

    `latency`: seconds of an emulated link. An all-reduce of two ranks has two steps, so it takes at least
    twice as long. 0 is the real loopback.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-casgd-") as folder:
        spawn(_rank, (folder, latency, function, arguments), nprocs=WORLD)  # type: ignore[no-untyped-call]
        return json.loads((Path(folder) / "result.json").read_text())


def _rank(
    rank: int, folder: str, latency: float, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "init_method": f"file://{folder}/rendezvous",
        "rank": rank,
        "world_size": WORLD,
        "timeout": TIMEOUT,
    }
    if latency:
        init(Links(Link(math.inf, latency)), **settings)
    else:
        dist.init_process_group("gloo", **settings)
    result = function(*arguments)
    if rank == 0:
        (Path(folder) / "result.json").write_text(json.dumps(result))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Threads of torch may abort a process that ends normally (bench/stopwatch.py).
