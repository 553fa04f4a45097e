"""Modules that the ranks' fork server imports once, before it forks ranks."""

from __future__ import annotations

import gc

import convoy.dcp  # noqa: F401
from convoy_workloads.launcher import warmup
from convoy_workloads.runtime.journal import guard  # noqa: F401

warmup.warm_up()
# Exclude the imported objects from garbage collection. The collector would otherwise write to the shared
# pages, and each child would copy them.
gc.freeze()
