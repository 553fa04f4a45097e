"""The text that the demo prints about a job that survived faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from convoy_operator.dashboard.core.timeline import TimelineEntry
from convoy_workloads.plot import curve

_WIDTH = 60
"""Number of columns of the loss curve."""
_MARGIN = 11
"""Number of columns to the left of the loss curve."""
_REPORT = re.compile(r"step (\d+)/\d+\s+loss ([0-9.]+)")


@dataclass(frozen=True)
class SurvivedFault:
    """A fault that the demo injected, and the job's recovery."""

    title: str
    """Description of the fault, such as `kill -9 of rank 1`."""
    reason: str
    """Reason that the operator recorded for the restart."""
    last_step: int
    """Last step that the job had reported before the fault."""
    restored_step: int
    """Step of the checkpoint from which the job continued."""
    replaced_pods: int
    noticed: float
    """Seconds from the fault until the operator decided to restart."""
    next_step: float
    """Seconds from the fault until the end of the next step."""

    @property
    def steps_lost(self) -> int:
        """Number of steps that the job made again."""
        return max(0, self.last_step - self.restored_step)


def faults_table(faults: Sequence[SurvivedFault]) -> str:
    """Return one line for each fault: its recovery time, and the steps that it cost."""
    rows = [("FAULT", "REASON", "NOTICED", "NEXT STEP", "STEPS LOST", "PODS REPLACED")]
    rows += [
        (
            one.title,
            one.reason,
            f"{one.noticed:.1f} s",
            f"{one.next_step:.1f} s",
            f"{one.steps_lost} ({one.restored_step} to {one.last_step})" if one.steps_lost else "0",
            str(one.replaced_pods),
        )
        for one in faults
    ]
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def timeline_text(entries: Iterable[TimelineEntry], start: datetime) -> str:
    """Return the entries, oldest first, one line each with the seconds since `start`."""
    ordered = sorted(entries, key=lambda one: one.at)
    return "\n".join(
        f"{max(0.0, (one.at - start).total_seconds()):6.1f} s  {one.reason}: {_first_sentence(one.message)}"
        for one in ordered
    )


def _first_sentence(text: str, longest: int = 110) -> str:
    sentence = text.partition(". ")[0]
    return sentence if len(sentence) <= longest else f"{sentence[: longest - 3]}..."


def losses(logs: Iterable[str]) -> list[tuple[int, float]]:
    """Return (step, loss) from logs of rank 0, oldest log first, by ascending step. The last report of a
    step counts.
    """
    return sorted({int(step): float(loss) for log in logs for step, loss in _REPORT.findall(log)}.items())


def loss_curve(points: Sequence[tuple[int, float]], faults: Sequence[SurvivedFault]) -> str:
    """Draw the loss by step, with a mark below the axis at the last step before each fault."""
    drawn = curve(points, title="loss by step", width=_WIDTH)
    if not drawn or not faults:
        return drawn
    first, last = points[0][0], points[-1][0]
    marks = [" "] * _WIDTH
    for one in faults:
        place = round((one.last_step - first) / max(1, last - first) * (_WIDTH - 1))
        marks[min(max(place, 0), _WIDTH - 1)] = "^"
    words = ", ".join(f"{one.title} at step {one.last_step}" for one in faults)
    return f"{drawn}\n{' ' * _MARGIN}{''.join(marks).rstrip()}\n{' ' * _MARGIN}^ {words}"
