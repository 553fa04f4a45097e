"""Lines of the runtime in the log of the job."""

from __future__ import annotations

import sys


def log_line(text: str) -> None:
    """One line."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)
