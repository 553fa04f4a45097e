"""One thread per process for the arithmetic of tests: several processes share the machine."""

from __future__ import annotations

import os

# Before anything imports torch or numpy. Threads that wait for each other on a busy machine take minutes for
# what one thread does in a second.
os.environ.setdefault("OMP_NUM_THREADS", "1")
