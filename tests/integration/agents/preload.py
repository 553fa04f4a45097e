"""Modules that the ranks' fork server imports once, before it forks ranks."""

from __future__ import annotations

import gc

import convoy.dcp  # noqa: F401
from convoy_workloads.launcher import warmup
from convoy_workloads.runtime.journal import guard  # noqa: F401

warmup.warm_up()
# Exclude the imported objects from Python's garbage collection. Otherwise the collector of each child would
# write to the pages that it shares with the fork server, and the kernel would copy these pages.
gc.freeze()
