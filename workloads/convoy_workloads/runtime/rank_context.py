"""Where this process stands in its job, read from the environment that the launcher sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.errors import ParamsError

DEFAULT_CHECKPOINT_SECONDS = 300.0


@dataclass(frozen=True)
class RankContext:
    """One rank's coordinates. Outside a job: rank 0 of 1, incarnation 0."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    incarnation: int = 0
    """Formation of the process group; 0 when no launcher started this process."""
    job: str = ""
    """`namespace/name`, or empty."""
    params: dict[str, Any] = field(default_factory=dict)
    socket: str = ""
    """Path of the agent's socket, or empty."""
    heartbeat: str = ""
    """Path of the file that the launcher's watchdog reads, or empty."""
    checkpoint_dir: Path | None = None
    """The folder of this job's checkpoints, its own alone."""
    tiers: frozenset[str] = frozenset()
    """Where checkpoints are kept: local, peer, remote."""
    checkpoint_seconds: float = DEFAULT_CHECKPOINT_SECONDS
    hang_seconds: float = 600.0
    grace_seconds: float = 25.0
    """Between SIGTERM and SIGKILL."""

    @property
    def launched(self) -> bool:
        """Whether Convoy's launcher started this process."""
        return self.incarnation > 0

    @property
    def in_memory(self) -> bool:
        """Whether checkpoints go to the memory of the job's nodes."""
        return self.launched and bool(self.socket) and "local" in self.tiers


def from_environment(environment: Mapping[str, str]) -> RankContext:
    """The place that the variables describe; ParamsError when one of them is malformed."""
    try:
        params = json.loads(environment.get("CONVOY_PARAMS") or "{}")
        root = environment.get("CONVOY_CHECKPOINT_DIR", "")
        context = RankContext(
            rank=int(environment.get("RANK", "0")),
            world=int(environment.get("WORLD_SIZE", "1")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            incarnation=int(environment.get("CONVOY_INCARNATION", "0")),
            job=environment.get("CONVOY_JOB", ""),
            params=params,
            socket=environment.get("CONVOY_SOCKET", ""),
            heartbeat=environment.get("CONVOY_HEARTBEAT", ""),
            checkpoint_dir=Path(root) if root else None,
            tiers=frozenset(environment.get("CONVOY_CHECKPOINT_TIERS", "").split(",")) - {""},
            checkpoint_seconds=float(
                environment.get("CONVOY_CHECKPOINT_SECONDS") or DEFAULT_CHECKPOINT_SECONDS
            ),
            hang_seconds=float(environment.get("CONVOY_HANG_SECONDS") or 600),
            grace_seconds=float(environment.get("CONVOY_GRACE_SECONDS") or 25),
        )
    except ValueError as error:
        raise ParamsError(f"the environment of this rank is malformed: {error}") from error
    if not isinstance(params, dict):
        raise ParamsError("CONVOY_PARAMS must hold a JSON object")
    return context
