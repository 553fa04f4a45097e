"""The newest value of each reported quantity, and the progress message that combines them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from convoy_workloads.runtime.metrics import Metrics

RATE_WINDOW = 10.0
"""Number of seconds over which the rate of samples is averaged."""


class Meter:
    """Keeps the newest value of each quantity that the program reports, and computes the rate of samples.

    Times are seconds of any clock that only moves forward.
    """

    def __init__(
        self, total: int | None = None, facts: Callable[[], dict[str, Any] | None] = lambda: None
    ) -> None:
        """`facts` returns the facts about the run, if there are any."""
        self.total = total
        self.step = 0
        self.loss: float | None = None
        self.metrics = Metrics()
        """The newest measurements of the metrics that the program itself reports."""
        self.first_step_ms = 0
        """Unix time in milliseconds when the first step of this incarnation ended; 0 before that step ends.
        """
        self.checkpoint_seconds = 0.0
        """Total seconds for which saves have stopped the training in this incarnation."""
        self.save_seconds = 0.0
        """Seconds for which the newest save stopped the training; 0 before the first save."""
        self.copy_seconds = 0.0
        """Duration, in seconds, of the newest save that was copied to other nodes: from its start until all
        its copies were complete. 0 if no save has been copied.
        """
        self._facts = facts
        self.restore_seconds = 0.0
        """Seconds that the restore at the start of this incarnation took; 0 without a restore."""
        self._samples = 0
        self._marks: deque[tuple[float, int]] = deque(maxlen=1024)

    def observe(
        self,
        step: int,
        now: float,
        loss: float | None = None,
        samples: int | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record one report. A quantity that the report leaves out keeps its last value.

        Return True if any metric in `metrics` was not reported for the previous step. Such a metric is
        reported only at some steps. Raises ValueError or TypeError if a metric is invalid; the message
        names the metric.
        """
        rare = bool(metrics) and self.metrics.record(step, metrics or {})
        self.step = step
        if loss is not None:
            self.loss = loss
        if samples is not None:
            self._samples += samples
            self._marks.append((now, self._samples))
            while len(self._marks) > 2 and now - self._marks[1][0] >= RATE_WINDOW:
                self._marks.popleft()
        return rare

    def samples_per_second(self) -> float | None:
        """Return the samples per second over the last `RATE_WINDOW` seconds; None before two reports."""
        if len(self._marks) < 2:
            return None
        (then, before), (now, after) = self._marks[0], self._marks[-1]
        return (after - before) / (now - then) if now > then else None

    def line(self) -> str:
        """Return the progress as a line for the log."""
        rate = self.samples_per_second()
        words = [f"step {self.step}" + (f"/{self.total}" if self.total else "")]
        words += [] if self.loss is None else [f"loss {self.loss:.4f}"]
        words += self.metrics.words()
        words += [] if rate is None else [f"{rate:.1f} samples/s"]
        return "  ".join(words)

    def message(self, time_ms: int) -> dict[str, Any]:
        """Return the `progress` message. It leaves out quantities that were never reported."""
        rate = self.samples_per_second()
        found = {
            "totalSteps": self.total,
            "samplesPerSecond": None if rate is None else round(rate, 3),
            "loss": _finite(self.loss),
            "metrics": self.metrics.message() or None,
            "diverged": True if self.loss is not None and _finite(self.loss) is None else None,
            "firstStepMs": self.first_step_ms or None,
            "checkpointMs": int(self.checkpoint_seconds * 1000) or None,
            # Round up, because 0 would mean that there was no save.
            "saveMs": math.ceil(self.save_seconds * 1000) or None,
            "copyMs": math.ceil(self.copy_seconds * 1000) or None,
            "restoreMs": math.ceil(self.restore_seconds * 1000) or None,
            "facts": self._facts(),
        }
        known = {name: value for name, value in found.items() if value is not None}
        return {"type": "progress", "step": self.step, "timeMs": time_ms, **known}


def _finite(value: float | None) -> float | None:
    """Return the value; None for NaN and infinity, which JSON lacks. The field `diverged` reports such a
    loss.
    """
    return value if value is not None and abs(value) < float("inf") else None
