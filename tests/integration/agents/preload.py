"""Imports that the ranks' fork server makes once."""

from __future__ import annotations

import gc

import convoy.dcp  # noqa: F401
from convoy_workloads.launcher import warmup
from convoy_workloads.runtime.journal import guard  # noqa: F401

warmup.warm_up()
# The garbage collector then does not touch, and so does not copy, pages that children share.
gc.freeze()
