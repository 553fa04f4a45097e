"""Processes for ranks. They are forked from a server that has imported torch, because each import of torch
takes two seconds.
"""

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
"""Modules that the server imports. They have no side effects that a test would notice.

Convoy's modules patch torch, so the list contains none of them.
"""


def context() -> ForkServerContext:
    """Return the context that starts each rank as a fork of the server."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(MODULES)
    return found
