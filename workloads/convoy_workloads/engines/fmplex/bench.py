"""Measures fmplex: many tasks on one shared backbone against an instance of the model for each task.

All arms compute the same requests on one thread, at half of the capacity of the shared backbone. The
instances also compute in batches, one task each. `FLOOD` measures the other tasks if one task sends more
than the capacity.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from convoy_workloads.bench.arms import PYTHON, Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure, compare
from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.fmplex.engine import Multiplexer
from convoy_workloads.engines.fmplex.open_loop import (
    LETTERS,
    Run,
    arrivals,
    capacity,
    loaded,
    percentile,
    serve,
)
from convoy_workloads.engines.fmplex.params import Params

BACKBONE = {
    "name": "text",
    "kind": "Text",
    "layers": 6,
    "width": 384,
    "heads": 6,
    "context": 8,
    "dtype": "BFloat16",
}
"""A backbone of 11 million parameters, in the type that most models are served in."""
TINY = {**BACKBONE, "layers": 1, "width": 32, "heads": 2}
FLOOD_FACTOR = 1.3
"""Rate of the flooding task as a multiple of the capacity."""
VICTIM_SHARE = 0.02
"""Rate of each other task as a share of the capacity."""


def tasks(count: int) -> list[dict[str, Any]]:
    """Return tasks with different adapters."""
    return [
        {
            "name": f"task-{number}",
            "head": "classify:4",
            "adapter_ref": f"seed:{number}",
            "max_queue": 1_000_000,
        }
        for number in range(count)
    ]


def params_of(chosen: Sequence[Mapping[str, Any]], options: Mapping[str, Any], order: str = "Fair") -> Params:
    """Return the parameters of an engine. Batches do not wait."""
    return Params.model_validate(
        {
            "backbones": [options["backbone"]],
            "tasks": list(chosen),
            "batch": {"max": options["batch"], "max_wait_ms": 0},
            "order": order,
        }
    )


def measure(options: dict[str, Any], shared: bool, order: str, flood: bool = False) -> dict[str, Any]:
    """Serve the workload once. Return latencies in seconds, the memory of the weights, and the digest of all
    results.

    `shared`: True for one engine, False for an engine for each task. `order`: order of the requests.
    `flood`: True if the first task sends more than the capacity.
    """
    engines = load(options, shared, order)
    weights = sum(model.facts.bytes for engine in engines for model in engine.models()[:1])
    adapters = sum(engine.adapter_bytes() for engine in engines)
    return {**served(engines, options, order, flood), "weights": weights + adapters}


def load(options: Mapping[str, Any], shared: bool, order: str) -> list[Multiplexer]:
    """Return one engine with all tasks, or an engine for each task."""
    chosen = tasks(options["tasks"])
    groups = [chosen] if shared else [[one] for one in chosen]
    return [loaded(params_of(group, options, order), options.get("device", "cpu")) for group in groups]


def served(
    engines: Sequence[Multiplexer], options: Mapping[str, Any], order: str, flood: bool
) -> dict[str, Any]:
    """Serve the workload once with engines that are loaded. Return latencies and the digest of all results.
    If `options` lack the capacity, it is measured first.
    """
    names = [one["name"] for one in tasks(options["tasks"])]
    home = {name: number % len(engines) for number, name in enumerate(names)}
    letters: int = options.get("letters", LETTERS)
    timer = time.thread_time if options.get("device", "cpu") == "cpu" else time.perf_counter
    most = options.get("capacity") or capacity(engines[0], names[0], options["batch"], letters, timer)
    if flood:
        rates = dict.fromkeys(home, VICTIM_SHARE * most)
        rates[names[0]] = FLOOD_FACTOR * most
    else:
        rates = {name: options["load"] * most / len(home) for name in home}
    due = arrivals(rates, options["requests"] / sum(rates.values()), 0, letters)
    return _latencies(serve(engines, home, due, order == "PerTask", timer), names[0] if flood else "")


def _latencies(found: Run, apart: str) -> dict[str, Any]:
    """Return the figures of all tasks except `apart`."""
    values = [one for name, some in found.latencies.items() if name != apart for one in some]
    return {
        "mean": sum(values) / len(values),
        "p99": percentile(values, 0.99),
        "makespan": found.seconds,
        "results": found.digest,
    }


def memory(options: dict[str, Any], shared: bool) -> dict[str, Any]:
    """Return the memory of one process with all tasks, or of a process for each task: the sum of the PSS in
    bytes.
    """
    chosen = tasks(options["tasks"])
    groups = [chosen] if shared else [[one] for one in chosen]
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_holding(group, options)) for group in groups]
        for one in started:
            assert one.stdout is not None  # noqa: S101 - it is a pipe
            if one.stdout.readline() != b"ready\n":
                raise RuntimeError(f"a process with {options['tasks']} tasks has ended while it loaded")
        return {"pss": sum(_pss(one.pid) for one in started)}


@contextlib.contextmanager
def _holding(group: list[dict[str, Any]], options: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that loads tasks and waits until the end of the context."""
    process = subprocess.Popen(
        [*PYTHON, __name__, params_of(group, options).model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/smaps_rollup has no Pss")


def _arm(name: str, options: Mapping[str, Any], shared: bool, order: str, flood: bool = False) -> Arm:
    return function(
        name, measure, {"options": dict(options), "shared": shared, "order": order, "flood": flood}
    )


def sharing(options: Mapping[str, Any]) -> Arms:
    """Return the arms: a shared backbone, and an instance for each task in two orders."""
    return Arms(
        _arm("fmplex", options, True, "Fair"),
        (
            _arm("an instance for each task, oldest request first", options, False, "Arrival"),
            _arm("an instance for each task, in turn", options, False, "PerTask"),
            _arm("a shared backbone, first come first served", options, True, "Arrival"),
        ),
        _arm("an instance for each task, oldest request first, again", options, False, "Arrival"),
    )


def flooding(options: Mapping[str, Any]) -> Arms:
    """Return the arms: the three orders on a shared backbone."""
    return Arms(
        _arm("fair queueing", options, True, "Fair", flood=True),
        (
            _arm("first come first served", options, True, "Arrival", flood=True),
            _arm("one task at a time, in turn", options, True, "PerTask", flood=True),
        ),
        _arm("first come first served, again", options, True, "Arrival", flood=True),
    )


def alone(options: Mapping[str, Any]) -> Arms:
    """Return the arms with one task. There is nothing to share, so fmplex must not gain: it is the
    control.
    """
    return Arms(
        _arm("an instance", options, False, "Arrival"),
        (_arm("an instance, again", options, False, "Arrival"),),
        _arm("fmplex with one task", options, True, "Fair"),
    )


def footprint(options: Mapping[str, Any]) -> Arms:
    """Return the arms: one process with all tasks, and a process for each task."""

    def one(name: str, shared: bool) -> Arm:
        return function(name, memory, {"options": dict(options), "shared": shared})

    return Arms(
        one("fmplex in one process", True),
        (one("a process for each task", False),),
        one("a process for each task, again", False),
    )


def _measure(name: str, key: str, unit: str = "s", target: float | None = None) -> Measure:
    return Measure(name=name, unit=unit, value_of=lambda trial: float(trial.result[key]), target=target)


Size = Literal["small", "full"]
SIZES: dict[Size, dict[str, Any]] = {
    "small": {"backbone": TINY, "batch": 8, "tasks": 3, "load": 0.5, "requests": 200},
    "full": {"backbone": BACKBONE, "batch": 16, "tasks": 16, "load": 0.5, "requests": 4000},
}
BENCH = Bench(
    sizes=SIZES,
    arms=sharing,
    measures=lambda options: [
        _measure(f"mean latency, {options['tasks']} tasks at half of the capacity", "mean", target=4.0),
        _measure(f"p99 latency, {options['tasks']} tasks at half of the capacity", "p99", target=4.0),
        _measure(f"memory of weights and adapters, {options['tasks']} tasks", "weights", "bytes", 10.0),
    ],
    equal=(Equality(key="results", name="all results, shared and private"),),
)
FLOOD = Bench(
    sizes=SIZES,
    arms=flooding,
    measures=lambda _: [
        _measure("p99 latency of the other tasks while one task floods", "p99", target=10.0),
        _measure("time to serve everything while one task floods", "makespan"),
    ],
    equal=(Equality(key="results", name="all results in the three orders"),),
    control_tolerance=0.2,
)
ALONE = Bench(
    sizes={
        size: {**options, "tasks": 1, "requests": options["requests"] // 2} for size, options in SIZES.items()
    },
    arms=alone,
    measures=lambda _: [_measure("mean latency, one task at half of the capacity", "mean")],
    equal=(Equality(key="results", name="all results of one task"),),
    control_tolerance=0.15,
)
MEMORY = Bench(
    # Each process needs about 200 MB, most of it for PyTorch.
    sizes={size: {**options, "tasks": min(8, options["tasks"])} for size, options in SIZES.items()},
    arms=footprint,
    measures=lambda options: [_measure(f"PSS, {options['tasks']} tasks", "pss", "bytes")],
    equal=(),
    rounds=3,
)


def figures(size: Size) -> Figures:
    """Return the rows of all benches."""
    found = Figures()
    for bench in (BENCH, FLOOD, ALONE, MEMORY):
        found.merge(compare(bench, size, None if size == "full" else 1))
    return found


def main() -> None:
    """Load the tasks of the JSON in the first argument, and wait until the standard input is closed."""
    made = loaded(Params.model_validate(json.loads(sys.argv[1])))
    print("ready", flush=True)
    sys.stdin.read()
    made.close()


if __name__ == "__main__":
    main()
