"""The notice of a pod to the actors on its Ray node: a file with the time at which the node vanishes.

Actors look at the file between two steps. It works without the head and without the driver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FILE = "notice"
VARIABLE = "CONVOY_RAY_NOTICE"
"""Variable with the path of the file, for the actors of the node."""


def write(folder: Path, deadline: float) -> None:
    """Announce that the node vanishes at `deadline` (Unix seconds)."""
    partial = folder / f"{FILE}.new"
    partial.write_text(f"{deadline:.3f}\n")
    partial.replace(folder / FILE)


def deadline(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the time (Unix seconds) at which this node vanishes; None without a notice."""
    path = environment.get(VARIABLE, "")
    try:
        return float(Path(path).read_text()) if path else None
    except (OSError, ValueError):
        return None
