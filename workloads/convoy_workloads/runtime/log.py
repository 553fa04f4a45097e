"""Log lines that Convoy's runtime writes in the process of a rank."""

from __future__ import annotations

import sys


def log_line(text: str) -> None:
    """Write one line to stderr, marked as a line of Convoy."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)
