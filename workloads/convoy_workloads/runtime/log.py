"""The runtime's lines in the log of the job."""

from __future__ import annotations

import sys


def log_line(text: str) -> None:
    """Write one line, marked as Convoy's, to stderr."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)
