"""Limits arithmetic to one thread per process, because several test processes share the machine."""

from __future__ import annotations

import os

# Set this before any test imports torch or numpy. On a busy machine, threads that wait for each other take
# minutes for the work of one second.
os.environ.setdefault("OMP_NUM_THREADS", "1")
