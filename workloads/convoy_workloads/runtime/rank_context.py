"""The position of this process in its job, read from the environment variables that the launcher sets."""

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
    """The position and the settings of one rank. A process outside a job is rank 0 of 1, in incarnation 0."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    incarnation: int = 0
    """Number of the current formation of the job's pods; 0 if no launcher started this process."""
    job: str = ""
    """Name of the job as `namespace/name`; empty outside a job."""
    params: dict[str, Any] = field(default_factory=dict)
    socket: str = ""
    """Path of the agent's socket; empty if there is no agent."""
    heartbeat: str = ""
    """Path of the heartbeat file that the launcher's watchdog reads; empty if there is no launcher."""
    result: str = ""
    """Path of the file for the job's result; empty outside a job, and on all ranks but rank 0."""
    checkpoint_dir: Path | None = None
    """Folder that holds only the checkpoints of this job; None if the job keeps no checkpoints in a folder.
    """
    tiers: frozenset[str] = frozenset()
    """Names of the tiers that keep checkpoints: local, peer, remote."""
    by_default: bool = False
    """True if the job does not ask for these tiers. A fault of its checkpoints must not end the program."""
    checkpoint_seconds: float = DEFAULT_CHECKPOINT_SECONDS
    journal: bool = True
    """False if every save to memory is a full one."""
    trace: str = ""
    """The order for a trace with which the rank starts, as JSON; empty if there is none."""
    hang_seconds: float = 600.0
    grace_seconds: float = 25.0
    """Seconds between SIGTERM and SIGKILL."""

    @property
    def launched(self) -> bool:
        """True if Convoy's launcher started this process."""
        return self.incarnation > 0

    @property
    def in_memory(self) -> bool:
        """True if checkpoints are kept in the memory of the job's nodes. A folder takes precedence over
        memory that the job does not ask for.
        """
        chosen = not self.by_default or self.checkpoint_dir is None
        return self.launched and bool(self.socket) and "local" in self.tiers and chosen


def from_environment(environment: Mapping[str, str]) -> RankContext:
    """Return the context that the environment variables describe. Raises ParamsError if a variable is
    malformed.
    """
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
            result=environment.get("CONVOY_RESULT", ""),
            checkpoint_dir=Path(root) if root else None,
            tiers=frozenset(environment.get("CONVOY_CHECKPOINT_TIERS", "").split(",")) - {""},
            by_default=environment.get("CONVOY_CHECKPOINT_BY_DEFAULT") == "true",
            checkpoint_seconds=float(
                environment.get("CONVOY_CHECKPOINT_SECONDS") or DEFAULT_CHECKPOINT_SECONDS
            ),
            journal=environment.get("CONVOY_CHECKPOINT_JOURNAL") != "false",
            trace=environment.get("CONVOY_TRACE", ""),
            hang_seconds=float(environment.get("CONVOY_HANG_SECONDS") or 600),
            grace_seconds=float(environment.get("CONVOY_GRACE_SECONDS") or 25),
        )
    except ValueError as error:
        raise ParamsError(f"the environment of this rank is malformed: {error}") from error
    if not isinstance(params, dict):
        raise ParamsError("CONVOY_PARAMS must hold a JSON object")
    return context
