"""The part `placements`: predicted and measured steps of a DDP job on hosts in racks.

The ranks are processes in network namespaces of this machine. Token buckets of the kernel limit the links of
hosts and racks. The step is described by a trace that was recorded in one rack, on the same links. The
prediction is that of `spec.placement.advise: Simulate`.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence

from convoy_controllers.placement.forecast.case import Case, case_of
from convoy_controllers.placement.topology import topology
from convoy_crds.placement import LABEL_HOST_RATE, LABEL_UPLINK_RATE, Step
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.traces.predict.job import Job, job_of
from convoy_workloads.traces.predict.shape import shape_of
from e2e.bench.advice.rack_network import rack_network
from e2e.bench.traces.rank import NONE, ON
from e2e.bench.traces.shape import Shape
from e2e.bench.traces.training import run_training
from e2e.cluster.progress import Progress

HOST_BITS, UPLINK_BITS = 200_000_000, 100_000_000
SHAPE = Shape(width=768, depth=4, batch=32, bucket_mib=4.0, ranks=4)
STEPS, ROUNDS = 6, 3
HOSTS = (0, 0, 0, 0, 1, 1, 1, 1)
"""Rack of each host."""
NAMED: Mapping[str, tuple[int, ...]] = {
    "one rack": (0, 0, 0, 0),
    "two racks": (0, 0, 1, 1),
    "two racks, ranks take turns": (0, 1, 0, 1),
}
"""Rack of each rank. The first is the advice, because its predicted step is the shortest."""
RANDOM = 10
"""Number of random placements: four of the eight hosts, in any order."""
MAX_ERROR = 20.0
"""Percent. The developers of ASTRA-sim report 17 % for all-reduces on eight H100."""


def add(found: Figures, progress: Progress) -> None:
    """Measure the part and add its figures."""
    progress.report("recording a step")
    one_rack = NAMED["one rack"]
    recording = run_training(SHAPE, [ON], STEPS, connected=rack_network(one_rack, HOST_BITS, UPLINK_BITS))
    step = described(job_of(recording.traces[0]))
    predicted = {racks: case(step, racks).predict().seconds for racks in {*NAMED.values(), *drawn()}}
    measured = _measure(progress)
    _add_named(found, predicted, measured)
    _add_advice(found, predicted, measured)
    _add_errors(found, predicted, measured)
    _add_control(found, step, measured)


def described(job: Job) -> Step:
    """Return the step as a user describes it in `spec.placement.step`."""
    shape = shape_of(job)
    return Step(
        forward_milliseconds=round(shape.head_seconds * 1e3),
        backward_milliseconds=round(sum(one.seconds for one in shape.reductions) * 1e3),
        optimizer_milliseconds=round(shape.tail_seconds * 1e3),
        gradient_bytes=shape.bytes,
        bucket_bytes=round(SHAPE.bucket_mib * 2**20),
    )


def case(step: Step, racks: Sequence[int], uplink_bits: int = UPLINK_BITS) -> Case:
    """Return the case that the operator simulates for ranks in these racks, each on a host of its own."""
    labels = {
        f"host-{rank}": {
            "rack": str(rack),
            LABEL_HOST_RATE: str(HOST_BITS / 1e9),
            LABEL_UPLINK_RATE: str(uplink_bits / 1e9),
        }
        for rank, rack in enumerate(racks)
    }
    return case_of(step, list(labels), topology(["rack"], labels), labels)


def drawn() -> list[tuple[int, ...]]:
    """Return the racks of the ranks of each random placement."""
    generator = random.Random(41)
    return [
        tuple(HOSTS[one] for one in generator.sample(range(len(HOSTS)), SHAPE.ranks)) for _ in range(RANDOM)
    ]


def worst(predicted: Mapping[tuple[int, ...], float]) -> tuple[int, ...]:
    """Return the placement with the longest predicted step."""
    return max(predicted, key=lambda racks: predicted[racks])


def _measure(progress: Progress) -> dict[tuple[int, ...], list[float]]:
    """Return the median seconds of a step of each run, by placement. Placements alternate."""
    found: dict[tuple[int, ...], list[float]] = {}
    runs = [*(list(NAMED.values()) * ROUNDS), *drawn()]
    for number, racks in enumerate(runs):
        progress.report(f"run {number + 1} of {len(runs)}: racks {'-'.join(map(str, racks))}")
        run = run_training(SHAPE, [NONE], STEPS, connected=rack_network(racks, HOST_BITS, UPLINK_BITS))
        found.setdefault(racks, []).append(statistics.median(run.reports[0].blocks[0]))
    return found


def _add_named(
    found: Figures,
    predicted: Mapping[tuple[int, ...], float],
    measured: Mapping[tuple[int, ...], list[float]],
) -> None:
    for name, racks in NAMED.items():
        times = measured[racks]
        spread = f"n={len(times)} runs, {min(times):.2f} to {max(times):.2f}"
        found.add(Metric(f"{name}: measured step", "seconds", spread=spread), statistics.median(times))
        found.add(Metric(f"{name}: predicted step", "seconds", kind="simulated"), predicted[racks])
    by_time = sorted(NAMED.values(), key=lambda racks: statistics.median(measured[racks]))
    by_forecast = sorted(NAMED.values(), key=lambda racks: predicted[racks])
    same = Metric("placements in another order than predicted, of 3", "", 0, aim="equal")
    found.add(same, sum(one != other for one, other in zip(by_time, by_forecast, strict=True)))


def _add_advice(
    found: Figures,
    predicted: Mapping[tuple[int, ...], float],
    measured: Mapping[tuple[int, ...], list[float]],
) -> None:
    advised = min(predicted, key=lambda racks: predicted[racks])
    step = statistics.median(measured[advised])
    at_random = [statistics.median(measured[racks]) for racks in drawn()]
    spread = f"n={len(at_random)} placements, {min(at_random):.2f} to {max(at_random):.2f} seconds"
    ratio = Metric("measured step: advised placement over a random one, mean", "ratio", 1.0, spread=spread)
    found.add(ratio, step / statistics.fmean(at_random))
    last = statistics.median(measured[worst(predicted)])
    found.add(Metric("measured step: advised placement over the worst one", "ratio", 1.0), step / last)


def _add_errors(
    found: Figures,
    predicted: Mapping[tuple[int, ...], float],
    measured: Mapping[tuple[int, ...], list[float]],
) -> None:
    errors = [
        100 * abs(predicted[racks] - time) / time for racks, times in measured.items() for time in times
    ]
    spread = f"n={len(errors)} runs, {min(errors):.0f} to {max(errors):.0f} %"
    found.add(
        Metric("error of the predicted step, median", "%", MAX_ERROR, spread=spread),
        statistics.median(errors),
    )
    found.add(Metric("error of the predicted step, largest", "%", spread=spread), max(errors))


def _add_control(found: Figures, step: Step, measured: Mapping[tuple[int, ...], list[float]]) -> None:
    """Add the differences that a forecast with wide uplinks sees between the placements: none, so it could
    not rank them.
    """
    blind = {racks: case(step, racks, 100 * HOST_BITS).predict().seconds for racks in NAMED.values()}
    spread = max(blind.values()) / min(blind.values())
    real = [statistics.median(measured[racks]) for racks in NAMED.values()]
    found.add(
        Metric("control, forecast with wide uplinks: longest over shortest step", "ratio", 1.05), spread
    )
    found.add(
        Metric("measured: longest over shortest step", "ratio", 1.05, higher_is_better=True),
        max(real) / min(real),
    )
