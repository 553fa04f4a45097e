"""Imports that the fork server of ranks does once."""

from __future__ import annotations

import gc

import convoy.dcp  # noqa: F401
from convoy_workloads.launcher import warmup
from convoy_workloads.runtime.journal import guard  # noqa: F401

warmup.warm_up()
# Keeps the collector from touching, and so copying, the pages that children share.
gc.freeze()
