"""The notice that the node of this pod will disappear.

The node's agent writes it to a file beside its socket, so every process of the pod can read it. The variable
CONVOY_NOTICE_FILE names the file. Without a notice there is no file.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "CONVOY_NOTICE_FILE"
MAX_BYTES = 4096
MAX_NAME = 253
MAX_DEADLINE_SECONDS = 3600.0
"""Maximum number of seconds until a reported node disappears."""
SOURCES = ("Ray",)
"""Sources that a program may name."""


@dataclass(frozen=True)
class Notice:
    """A notice that the node of this pod will disappear."""

    kind: str
    """`Preemption`, `Removal`, or `Rebalance`, which only warns of a likely preemption."""
    sources: tuple[str, ...]
    """Names of the sources that gave the notice, such as `Taint` or `AWS`."""
    at: float
    """Unix seconds at which Convoy learned of the notice."""
    deadline: float | None
    """Unix seconds at which the node may disappear; None for Rebalance."""

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the node may disappear: at least 0, and infinity for Rebalance."""
        return math.inf if self.deadline is None else max(0.0, self.deadline - time.time())


def read(environ: Mapping[str, str] = os.environ) -> Notice | None:
    """Return the notice about the node of this pod; None if there is none, or no agent."""
    path = environ.get(VARIABLE)
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            found = json.loads(file.read(MAX_BYTES))
        deadline = float(found["deadlineMs"]) / 1000
        sources = tuple(str(one) for one in found["sources"])
        return Notice(str(found["kind"]), sources, float(found["atMs"]) / 1000, deadline or None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def draining_message(node: str, deadline_seconds: float, source: str) -> dict[str, Any]:
    """Return the message that reports another node. Raises ValueError for an invalid argument."""
    if source not in SOURCES:
        raise ValueError(f"source: {source!r} is not one of {', '.join(SOURCES)}")
    if not isinstance(node, str) or not 0 < len(node) <= MAX_NAME:
        raise ValueError(f"node: {node!r} is neither the name of a node nor the IP of a pod")
    if not 0 <= deadline_seconds <= MAX_DEADLINE_SECONDS:
        raise ValueError(
            f"deadline_seconds: {deadline_seconds!r} is not between 0 and {MAX_DEADLINE_SECONDS:.0f}"
        )
    deadline_ms = int((time.time() + deadline_seconds) * 1000)
    return {"type": "draining", "node": node, "deadlineMs": deadline_ms, "source": source}
