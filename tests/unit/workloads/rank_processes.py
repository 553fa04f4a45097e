"""Processes for ranks, forked from a server that has imported torch, because each import takes two seconds."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

MODULES = [
    "torch",
    "torch.distributed",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.utils.data",
    "pytest",
]
"""Modules whose import has no side effect that a test would notice. Convoy's modules patch torch, so none
is listed.
"""


def context() -> ForkServerContext:
    """Return the context that starts a rank as a fork of the server."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(MODULES)
    return found
