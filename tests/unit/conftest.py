"""Limits arithmetic to one thread per process, because several test processes share the machine."""

from __future__ import annotations

import os

# Set before anything imports torch or numpy. On a busy machine, threads that wait for each other take minutes
# for a second's work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
