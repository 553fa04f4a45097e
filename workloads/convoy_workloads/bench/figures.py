"""Collects the values of repeated measurements, and writes them as a JSON file. All benches use this
format.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

CHECKOUT = Path(__file__).parents[3]
FOLDER = CHECKOUT / "docs" / "bench"


@dataclass(frozen=True)
class Metric:
    """A measured quantity. Lower values are better unless `higher_is_better` is True."""

    name: str
    unit: str
    target: float | None = None
    """Maximum value that meets the target; with `higher_is_better`, the minimum value."""
    baseline: str = ""
    """Name of the metric to compare with; empty if there is none."""
    kind: str = "measured"
    """Origin of the value: `measured`, `simulated`, `calibrated simulation`, `paper claim`, or `not
    measured: ` and the reason.
    """
    higher_is_better: bool = False
    """True if a higher value of the metric is better than a lower one."""
    spread: str = ""
    """Text to show instead of the range of the values, such as a confidence interval; empty to show the
    range.
    """
    aim: Literal["limit", "equal", "within"] = "limit"
    """Meaning of the target. `limit`: the median may not be worse. `equal`: each value is the target.
    `within`: the median lies between -target and target, for controls, which may be off in either direction.
    """
    verdict: bool | None = None
    """True if a statistical test shows what the row claims; the target is then met only if the median meets
    it and the test agrees. None if there is no test.
    """


@dataclass
class Figures:
    """The measured values of every metric, one value per repeat. A value of None means that the event to be
    timed did not happen within the time limit.
    """

    metrics: dict[str, Metric] = field(default_factory=dict)
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, metric: Metric, value: float | None) -> None:
        """Add the value that one more repeat has measured."""
        self.metrics[metric.name] = metric
        self.values.setdefault(metric.name, []).append(value)

    def add_unmeasured(self, metric: Metric, why: str) -> None:
        """Record that a metric cannot be measured on this machine, and why."""
        self.metrics[metric.name] = replace(metric, kind=f"not measured: {why}")
        self.values.setdefault(metric.name, [])

    def merge(self, others: Figures) -> None:
        """Add all metrics and values of `others`."""
        for name, metric in others.metrics.items():
            self.metrics[name] = metric
            self.values.setdefault(name, []).extend(others.values[name])

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of the JSON file about the metric `name`: the median of its values, the target,
        and the ratio of the baseline's median to this median.
        """
        metric, value = self.metrics[name], self._median(name)
        baseline = self._median(metric.baseline) if metric.baseline else None
        return {
            "metric": name,
            "value": _rounded(value),
            "unit": metric.unit,
            "baseline": _rounded(baseline),
            # A ratio above 1 means that the baseline is slower.
            "ratio": _rounded(baseline / value) if value and baseline is not None else None,
            "target": metric.target,
            "met": self._met(name),
            "kind": metric.kind,
            "spread": self._spread(name),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, in the order in which the metrics were first added."""
        return [self.row(name) for name in self.metrics]

    def _met(self, name: str) -> bool | None:
        """Return True if the target of the metric `name` is met, and None if there is nothing to judge."""
        metric, values = self.metrics[name], self.values[name]
        if metric.target is None or not values:
            return None
        if metric.aim == "equal":
            fulfilled = all(one == metric.target for one in values)
        else:
            fulfilled = _fulfilled(metric, self._median(name))
        return fulfilled and metric.verdict is not False

    def _median(self, name: str) -> float | None:
        """Return the median of the values of the metric `name`. An event that did not happen counts as
        later than all other events. Return None if the median is such an event.
        """
        values = [math.inf if value is None else value for value in self.values.get(name, ())]
        middle = statistics.median_low(values) if values else math.inf
        return middle if math.isfinite(middle) else None

    def _spread(self, name: str) -> str:
        if self.metrics[name].spread:
            return self.metrics[name].spread
        values = self.values[name]
        there = [value for value in values if value is not None]
        missing = len(values) - len(there)
        words = f"{_rounded(min(there))} to {_rounded(max(there))}, " if there else ""
        return f"{words}n={len(values)}" + (
            f", {missing} of them not within the time limit" if missing else ""
        )


def _fulfilled(metric: Metric, value: float | None) -> bool:
    if metric.target is None or value is None:
        return False
    if metric.aim == "within":
        return abs(value) <= metric.target
    return value >= metric.target if metric.higher_is_better else value <= metric.target


def _rounded(value: float | None) -> float | None:
    """Return the value rounded to three significant digits."""
    if value is None or value == 0:
        return value
    return round(value, max(0, 2 - math.floor(math.log10(abs(value)))))


def line(row: dict[str, Any]) -> str:
    """Return a row of `Figures.rows` as a line of text for the terminal."""
    if row["value"] is None and row["kind"].startswith("not measured"):
        return f"{row['metric']:<78} {row['kind']}"
    value = "never" if row["value"] is None else f"{row['value']:g}"
    words = f"{row['metric']:<78} {value:>8} {row['unit']}  ({row['spread']})"
    if row["target"] is not None:
        words += f"  {'meets' if row['met'] else 'MISSES'} {row['target']:g}"
    if row["ratio"] is not None:
        words += f"  baseline {row['baseline']:g}, ratio {row['ratio']:g}"
    return words


def write(name: str, command: str, figures: Figures, date: str) -> Path:
    """Replace docs/bench/<name>.json by the rows of `figures`. Return the file's path."""
    path = FOLDER / f"{name}.json"
    document = {
        "name": name,
        "command": command,
        "commit": commit(),
        "date": date,
        "machine": this_machine(),
        "rows": figures.rows(),
    }
    replace_file(path, document)
    return path


def replace_file(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file. A reader sees either the old or the whole new contents."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(json.dumps(document, indent=2) + "\n")
    beside.replace(path)


def commit() -> str:
    """Return the short hash of the checkout's commit."""
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def this_machine() -> str:
    """Return a description of this machine without its host name. It names the NVIDIA GPUs."""
    kernel = f"{platform.system()} {platform.release().split('-')[0]}"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = [f"{os.cpu_count() or 1} cores", f"{round(memory / 2**30)} GiB", kernel]
    return ", ".join([*own, *(f"{count} x {name}" for name, count in Counter(_gpus()).items())])


def _gpus() -> list[str]:
    """Return the names of this machine's NVIDIA GPUs; none if it has no driver."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def publish(found: Figures, name: str, command: str, whole: bool) -> None:
    """Print the figures. If `whole` is True, also replace the bench's JSON file."""
    for row in found.rows():
        print(line(row))
    if whole:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        print(write(name, command, found, today))
