"""A rank of a DDP training with gloo, with blocks of steps under different recorders.

`python -m e2e.bench.traces.rank RANK SETTINGS` runs it. The settings are JSON, see `Settings`. The rank
writes its times to `rank.RANK.json` in the folder of the settings.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from convoy_workloads.comm.linked_group import init
from convoy_workloads.comm.links import Link, Links
from convoy_workloads.traces.record import Recorder, record
from e2e.bench.traces.shape import Shape

NONE, OFF, ON, SLOWED = "none", "off", "on", "slowed"
"""Kinds of blocks: no recorder; a recorder of other steps; a recorder of all steps; no recorder, but each
step is made longer on purpose."""
SLOWED_BY = 0.06
"""Share of a step by which a slowed one is longer."""
WARM_UP = 4
"""Steps before the first block."""


@dataclass(frozen=True)
class Settings:
    """Settings of a rank."""

    folder: str
    """Folder of the rendezvous, the traces and the results."""
    shape: Shape
    blocks: tuple[str, ...]
    steps: int
    """Steps of each block."""
    collectives: tuple[int, ...] = ()
    """Sizes in bytes of all-reduces that are timed before the training, without other work."""
    repeats: int = 5

    def as_json(self) -> str:
        """Return the text that `of` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Settings:
        """Return the settings in a JSON text."""
        values: dict[str, Any] = json.loads(text)
        values["shape"] = Shape(**values["shape"])
        return cls(**values | {name: tuple(values[name]) for name in ("blocks", "collectives")})


@dataclass
class Report:
    """Measured times of a rank."""

    parameters: int
    blocks: list[list[float]] = field(default_factory=list)
    """Seconds of each step of each block."""
    processor: list[list[float]] = field(default_factory=list)
    """Processor seconds of all the rank's threads, for each step in each block."""
    starts: list[float] = field(default_factory=list)
    """Seconds that each recording took to start."""
    ends: list[float] = field(default_factory=list)
    """Seconds that each recording took to end and to write its files."""
    collectives: list[float] = field(default_factory=list)
    """Median seconds of each size of all-reduce on idle links."""
    problems: list[str] = field(default_factory=list)


class Seconds(NamedTuple):
    """Wall time and processor time of the process."""

    wall: float
    processor: float

    def since(self, before: Seconds) -> Seconds:
        """Return the times that have passed since."""
        return Seconds(self.wall - before.wall, self.processor - before.processor)


class Training:
    """The model and its steps."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(shape.depth):
            layers += [nn.Linear(shape.width, shape.width), nn.ReLU()]
        model = nn.Sequential(*layers)
        self.parameters = sum(one.numel() for one in model.parameters())
        self._model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=shape.bucket_mib)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._batch = torch.randn(shape.batch, shape.width)

    def step(self) -> None:
        """Train for one step."""
        self._model(self._batch).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


def main() -> None:
    """Run the rank."""
    rank, settings = int(sys.argv[1]), Settings.of(sys.argv[2])
    folder = Path(settings.folder)
    torch.set_num_threads(1)
    _init(settings.shape, f"file://{folder}/store", rank)
    training = Training(settings.shape)
    report = Report(training.parameters)
    for size in settings.collectives:
        report.collectives.append(_time_all_reduce(size, settings.repeats))
    for _ in range(WARM_UP):
        training.step()
    usual = 0.0
    for number in range(len(settings.blocks)):
        dist.barrier()
        times = _block(number, training, settings, rank, report, usual)
        report.blocks.append([one.wall for one in times])
        report.processor.append([one.processor for one in times])
        usual = usual or statistics.median(report.blocks[0])
    (folder / f"rank.{rank}.json").write_text(json.dumps(asdict(report)))
    dist.barrier()
    dist.destroy_process_group()


def _init(shape: Shape, store: str, rank: int) -> None:
    """Form the process group."""
    if shape.emulated and shape.bits_per_second is not None:
        links = Links(Link(shape.bits_per_second / 8))
        init(links, init_method=store, rank=rank, world_size=shape.ranks)
    else:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=shape.ranks)


def _time_all_reduce(size: int, repeats: int) -> float:
    """Return the median seconds of an all-reduce while nothing else runs."""
    tensor, times = torch.ones(size // 4), []
    for _ in range(repeats):
        dist.barrier()
        times.append(_seconds(lambda: dist.all_reduce(tensor)).wall)
    return statistics.median(times)


def _block(
    number: int,
    training: Training,
    settings: Settings,
    rank: int,
    report: Report,
    usual: float,
) -> list[Seconds]:
    """Run a block of steps. Return the times of each step."""
    kind, steps = settings.blocks[number], range(1, settings.steps + 1)
    if kind == NONE:
        return [_seconds(training.step) for _ in steps]
    if kind == SLOWED:
        return [_seconds(lambda: _slowed(training, usual)) for _ in steps]
    traces = Path(settings.folder) / f"traces{number}"
    recorded = range(10**6, 10**6 + 1) if kind == OFF else steps
    times: list[Seconds] = []
    with record(traces, recorded, rank=rank) as recorder:
        for step in steps:
            times.append(_recorded_step(recorder, step, kind, training, report, step == steps[-1]))
    if recorder.problem:
        report.problems.append(recorder.problem)
    return times


def _recorded_step(
    recorder: Recorder, step: int, kind: str, training: Training, report: Report, last: bool
) -> Seconds:
    """Return the times of a step with its recorder. Start and end of a recording count apart: they happen
    once, whatever the number of steps.
    """
    with contextlib.ExitStack() as stack:
        before = _now()
        stack.enter_context(recorder.step(step))
        begun = _now()
        training.step()
        done = _now()
        stack.close()
        after = _now()
    if kind != ON:
        return after.since(before)
    if step == 1:
        report.starts.append(begun.since(before).wall)
        return after.since(begun)
    if last:
        report.ends.append(after.since(done).wall)
        return done.since(before)
    return after.since(before)


def _slowed(training: Training, usual: float) -> None:
    training.step()
    end = time.perf_counter() + usual * SLOWED_BY
    while time.perf_counter() < end:
        pass


def _seconds(function: Callable[[], Any]) -> Seconds:
    before = _now()
    function()
    return _now().since(before)


def _now() -> Seconds:
    return Seconds(time.perf_counter(), time.process_time())


if __name__ == "__main__":
    main()
