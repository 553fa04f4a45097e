"""Reads a job's steps, checkpoints and final state from its status and its log."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from e2e.drive.jobs import Jobs

_STATE = re.compile(r"state after step \d+: sha256 (\w+)")


def last_step(jobs: Jobs, name: str) -> int:
    """Return the last step that a job has reported; 0 if it has reported none."""
    return int((jobs.status(name).get("progress") or {}).get("step", 0))


def seconds_per_step(jobs: Jobs, name: str, steps: int = 50) -> float:
    """Wait for `steps` more steps of a job and return the mean seconds per step, as the job reports them."""

    def far() -> dict[str, Any] | None:
        progress: dict[str, Any] = jobs.status(name)["progress"]
        return progress if progress["step"] >= first["step"] + steps else None

    first = jobs.status(name)["progress"]
    last = jobs.wait(far, 600, f"{steps} steps")
    took = datetime.fromisoformat(last["time"]) - datetime.fromisoformat(first["time"])
    return float(took.total_seconds() / (last["step"] - first["step"]))


def watermark(status: dict[str, Any], tier: str) -> dict[str, Any] | None:
    """Return the newest generation that a job's status lists for a tier; None if there is none."""
    found: dict[str, Any] | None = ((status.get("checkpoint") or {}).get("watermarks") or {}).get(tier)
    return found


def final_state_digest(jobs: Jobs, name: str, seconds: float = 300) -> str:
    """Wait until a job succeeds. Return the SHA-256 of weights and optimizer state that rank 0 logs."""
    jobs.wait_phase(name, "Succeeded", seconds)
    found = _STATE.findall(jobs.log(f"{name}-worker-0"))
    assert found
    return str(found[-1])


def wait_for_copies(jobs: Jobs, name: str, incarnation: int = 1) -> dict[str, Any]:
    """Wait until a generation of `incarnation` or later is complete in the tier `peer`. Return its
    watermark.
    """

    def mark() -> Any:
        peer = watermark(jobs.status(name), "peer")
        return peer if peer and peer["incarnation"] >= incarnation else None

    found: dict[str, Any] = jobs.wait(mark, 60, f"copies of incarnation {incarnation}")
    return found


def held_out_losses(log: str, every: int) -> dict[int, str]:
    """Return the logged held-out losses by step, for every step that is a multiple of `every`.

    The loss is measured only at these steps; log lines of other steps repeat the last value. Asserts that a
    step that was computed twice has the same loss both times.
    """
    found: dict[int, str] = {}
    for text, loss in re.findall(r"step (\d+)/\d+.*held_out_loss ([0-9.]+)", log):
        step = int(text)
        if step % every == 0:
            assert found.setdefault(step, loss) == loss
    return found
