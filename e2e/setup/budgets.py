"""Measures the layers of `make test`: `python3 -m e2e.setup.budgets run LAYER COMMAND...`.

- `run` runs a command, prints its time and the layer's budget, and stores the time in build/test-times.json.
- `table` prints the stored times.
- `record` writes the stored times as rows to docs/bench/setup.json.

A layer that exceeds its budget does not fail, because the machine may be busy. The module uses only the
standard library, because it runs before the Python environment exists.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMES = ROOT / "build" / "test-times.json"
ROWS = ROOT / "docs" / "bench" / "setup.json"
BUDGETS = {"lint": 90, "docs": 30, "unit": 240, "integration": 540, "e2e": 600}
"""Maximum seconds of each layer on two idle cores with warm caches."""


@dataclass(frozen=True)
class LayerTime:
    """Result and times of a layer's last run."""

    seconds: float
    processor_seconds: float
    passed: bool
    commit: str
    date: str


def line(layer: str, time: LayerTime) -> str:
    """Return the result of a layer's run as text. A second line warns if the budget is exceeded."""
    budget = BUDGETS[layer]
    text = f"{layer}: {time.seconds:.0f} s of {budget} s ({time.processor_seconds:.0f} s of processor time)"
    if time.seconds <= budget:
        return text
    return f"{text}\nwarning: {layer} is over its budget by {time.seconds - budget:.0f} s"


def table(times: Mapping[str, LayerTime]) -> str:
    """Return the times of all layers as a text table, in the order of `make test`."""
    found = {layer: times[layer] for layer in BUDGETS if layer in times}
    rows = [("layer", "seconds", "budget", "processor")]
    rows += [
        (layer, f"{one.seconds:.0f}", str(BUDGETS[layer]), f"{one.processor_seconds:.0f}")
        for layer, one in found.items()
    ]
    total = (sum(one.seconds for one in found.values()), sum(one.processor_seconds for one in found.values()))
    rows.append(("all", f"{total[0]:.0f}", str(sum(map(BUDGETS.__getitem__, found))), f"{total[1]:.0f}"))
    return "\n".join(f"{layer:<12}" + "".join(f"{cell:>10}" for cell in cells) for layer, *cells in rows)


def with_rows(document: Mapping[str, Any], times: Mapping[str, LayerTime]) -> dict[str, Any]:
    """Return the contents of setup.json with a new row for each of these layers. A row that replaces
    another one keeps its baseline.
    """
    rows = list(document["rows"])
    positions = {row["metric"]: position for position, row in enumerate(rows)}
    for layer, one in times.items():
        metric = f"layers of make test: {layer}"
        position = positions.get(metric)
        baseline = None if position is None else rows[position]["baseline"]
        row = _row(metric, BUDGETS[layer], one, baseline)
        if position is None:
            rows.append(row)
        else:
            rows[position] = row
    return {**document, "rows": rows}


def _row(metric: str, budget: int, one: LayerTime, baseline: float | None) -> dict[str, Any]:
    seconds = max(1, round(one.seconds))
    how = f"{one.date}, {one.commit}: one run, {one.processor_seconds:.0f} s of processor time"
    return {
        "metric": metric,
        "value": seconds,
        "unit": "seconds",
        "baseline": baseline,
        "ratio": None if baseline is None else round(baseline / seconds, 2),
        "target": budget,
        "met": seconds <= budget,
        "kind": "measured",
        "spread": how if baseline is None else f"{how}; baseline: 55cf950, before the layers had budgets",
    }


def read_times(path: Path) -> dict[str, LayerTime]:
    """Return the stored times by layer; empty if the file does not exist."""
    if not path.exists():
        return {}
    return {layer: LayerTime(**one) for layer, one in json.loads(path.read_text()).items()}


def keep(path: Path, layer: str, time: LayerTime) -> None:
    """Store the time of a layer in the file `path`."""
    _write(path, {name: asdict(one) for name, one in {**read_times(path), layer: time}.items()})


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    partial.replace(path)


def run_timed(command: Sequence[str]) -> tuple[int, float, float]:
    """Run a command. Return its exit status, its seconds, and the processor seconds of its processes.

    A negative status, which stands for a signal, becomes 128 + the signal's number, as in a shell.
    """
    started, used = time.monotonic(), _processor_seconds()
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    # Ignore an interrupt and wait for the command: the terminal interrupts it too, and it may have a cluster
    # to remove.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    with subprocess.Popen(command) as child:
        children.append(child)
        status = child.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return (
        status if status >= 0 else 128 - status,
        time.monotonic() - started,
        _processor_seconds() - used,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return found.stdout.strip() or "unknown"


def main(arguments: Sequence[str]) -> int:
    """Run one subcommand and return its exit status."""
    match list(arguments):
        case ["run", layer, *command] if layer in BUDGETS and command:
            status, seconds, processor = run_timed(command)
            one = LayerTime(
                round(seconds, 1),
                round(processor, 1),
                not status,
                _commit(),
                time.strftime("%Y-%m-%d", time.gmtime()),
            )
            keep(TIMES, layer, one)
            print(line(layer, one), flush=True)
            return status
        case ["table"]:
            print(table(read_times(TIMES)))
            return 0
        case ["record"]:
            passed = {layer: one for layer, one in read_times(TIMES).items() if one.passed}
            _write(ROWS, with_rows(json.loads(ROWS.read_text()), passed))
            return 0
    print(f"usage: budgets run {{{','.join(BUDGETS)}}} COMMAND... | table | record", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
