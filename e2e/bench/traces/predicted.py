"""The part predicted: predicted against measured step times of real jobs on links of limited rate.

Each job is recorded once, on links of one rate. Its trace predicts the step on other links and with other
buckets of gradients, which then are measured without a recorder. The ranks are processes in network
namespaces of this machine; a token bucket of the kernel limits what each sends.

Baselines: the sum of computation and communication, and links that are calibrated while they are idle, with
each rank replayed alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.traces.comm_models import RingModel
from convoy_workloads.traces.predict.calibration import Calibration, calibrate
from convoy_workloads.traces.predict.job import Job, job_of
from convoy_workloads.traces.predict.links import Links
from convoy_workloads.traces.predict.predict import at_speed, predicted_step_us, rebucketed, recorded_step_us
from convoy_workloads.traces.predict.sharing import Sharing
from convoy_workloads.traces.predict.together import Together, replay_together
from convoy_workloads.traces.replay import replay
from e2e.bench.traces.cases import BASE_RATE, CASES, EMULATED, FREE, RECORDED, WIDE, Case
from e2e.bench.traces.rank import NONE, ON
from e2e.bench.traces.shape import Shape
from e2e.bench.traces.training import run_training

STEPS = 10
LINK_RATE = BASE_RATE / 8e6
"""Known rate of the recorded links, in bytes a microsecond."""
ROUNDS = 3
MAX_ERROR = 20.0
"""Percent. The developers of ASTRA-sim report 17 % for all-reduces on eight H100."""
IDLE_SIZES = tuple(2**power for power in range(12, 24, 2))
"""Bytes of the all-reduces that calibrate idle links."""
LEAST_SHIFT = 50.0
"""Percent by which a prediction for other links must be wrong."""


@dataclass(frozen=True)
class Recording:
    """A recorded job."""

    job: Job
    untraced_ms: float
    """Median milliseconds of a step without a recorder, in the same run."""
    idle: RingModel | None
    """Links as calibrated while idle."""


def add(found: Figures) -> None:
    """Add the figures."""
    recordings = {shape: _record(shape) for shape in RECORDED}
    measured = _measure(CASES, ROUNDS)
    fitted = {shape: calibrate(recording.job) for shape, recording in recordings.items()}
    used = {shape: _there(fitted[WIDE if shape.ranks == WIDE.ranks else shape]) for shape in recordings}
    _calibrations(found, recordings, fitted)
    predicted = {
        case: predicted_step_us(
            recordings[case.recorded].job,
            at_speed(used[case.recorded].links, case.speed, LINK_RATE),
            case.bucket_bytes,
        )
        / 1e3
        for case in CASES
    }
    medians = _medians(measured)
    _cases(found, predicted, measured)
    _summary(found, "", predicted, medians)
    _baselines(found, recordings, medians)
    recorded = {shape: recorded_step_us(one.job) / 1e3 for shape, one in recordings.items()}
    _controls(found, predicted, medians, {case: recorded[case.recorded] for case in CASES})


def add_emulated(found: Figures) -> None:
    """Add the figures of links that the process group emulates. Their model is known: one operation after the
    other, over a ring. Nothing is calibrated; the trace was recorded without a limit.
    """
    job = job_of(run_training(FREE, [ON], STEPS).traces[0])
    measured = _measure(EMULATED, ROUNDS)
    predicted = {}
    for case in EMULATED:
        links = Links(0.0, BASE_RATE * case.speed / 8e6, Sharing.FIFO)
        predicted[case] = predicted_step_us(job, links, case.bucket_bytes) / 1e3
    _cases(found, predicted, measured)
    _summary(found, "emulated links: ", predicted, _medians(measured))


def _medians(measured: Mapping[Case, Sequence[float]]) -> dict[Case, float]:
    return {case: statistics.median(times) for case, times in measured.items()}


def _cases(found: Figures, predicted: Mapping[Case, float], measured: Mapping[Case, Sequence[float]]) -> None:
    """Add the error of each case."""
    for case, median in _medians(measured).items():
        times = measured[case]
        spread = (
            f"predicted {predicted[case]:.0f} ms, measured {median:.0f} ms "
            f"({min(times):.0f} to {max(times):.0f}, n={len(times)} runs)"
        )
        name = f"error of the predicted step time: {case}"
        metric = Metric(name, "%", target=MAX_ERROR, spread=spread)
        found.add(metric, _error(predicted[case], median))


def _there(calibration: Calibration | None) -> Calibration:
    if calibration is None:
        raise ValueError("the trace has no communication to calibrate the links")
    return calibration


def _record(shape: Shape) -> Recording:
    run = run_training(shape, [NONE, ON], STEPS, IDLE_SIZES)
    each = zip(*(report.collectives for report in run.reports), strict=True)
    times = [statistics.median(one) for one in each]
    untraced = 1e3 * statistics.median(run.reports[0].blocks[0])
    return Recording(job_of(run.traces[0]), untraced, fit_idle(IDLE_SIZES, times, shape.ranks))


def fit_idle(sizes: Sequence[int], seconds: Sequence[float], ranks: int) -> RingModel:
    """Return the ring model with the least relative squares of the times of all-reduces."""
    # t = x S + y B for S messages and B bytes; each row is divided by its t.
    rows = [
        (2 * (ranks - 1) / (time * 1e6), 2 * (ranks - 1) / ranks * size / (time * 1e6))
        for size, time in zip(sizes, seconds, strict=True)
    ]
    aa, ab, bb = (sum(one[i] * one[j] for one in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(one[i] for one in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    latency, per_byte = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    return RingModel(max(latency, 0.0), 1 / per_byte, ranks)


def _measure(cases: Sequence[Case], rounds: int) -> dict[Case, list[float]]:
    """Return the milliseconds of a step of each case, one value for each round. Cases alternate."""
    found: dict[Case, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, times in found.items():
            report = run_training(case.shape, [NONE], STEPS).reports[0]
            times.append(1e3 * statistics.median(report.blocks[0]))
    return found


def _error(predicted: float, measured: float) -> float:
    return 100 * abs(predicted / measured - 1)


def _calibrations(
    found: Figures, recordings: Mapping[Shape, Recording], fitted: Mapping[Shape, Calibration | None]
) -> None:
    """Add the fitted links and what speaks for the fit."""
    for shape, calibration in fitted.items():
        links = _there(calibration).links
        error = f"fit error {100 * _there(calibration).error:.0f} %, latency {links.latency_us:.0f} us"
        metric = Metric(f"bandwidth under load, from the trace: {shape}", "Mbit/s", spread=error)
        found.add(metric, links.bytes_per_us * 8)
        idle = recordings[shape].idle
        if idle is not None:
            spread = f"latency {idle.latency_us:.0f} us"
            metric = Metric(f"bandwidth of idle links: {shape}", "Mbit/s", spread=spread)
            found.add(metric, idle.bytes_per_us * 8)
        recorded = recorded_step_us(recordings[shape].job) / 1e3
        spread = f"recorded {recorded:.0f} ms, without a recorder {recordings[shape].untraced_ms:.0f} ms"
        metric = Metric(f"recorded step against one without a recorder: {shape}", "%", spread=spread)
        found.add(metric, 100 * (recorded / recordings[shape].untraced_ms - 1))


def wrong_pairs(predicted: Mapping[Case, float], measured: Mapping[Case, float]) -> int:
    """Return the number of pairs of cases whose predictions have the other order than the measured times."""
    return sum(
        (predicted[one] - predicted[two]) * (measured[one] - measured[two]) <= 0
        for one, two in combinations(predicted, 2)
    )


def _summary(
    found: Figures, what: str, predicted: Mapping[Case, float], measured: Mapping[Case, float]
) -> None:
    errors = [_error(predicted[case], measured[case]) for case in predicted]
    for name, value in (("median", statistics.median(errors)), ("largest", max(errors))):
        spread = f"{len(errors)} cases"
        metric = Metric(
            f"{what}error of the predicted step time: {name}", "%", target=MAX_ERROR, spread=spread
        )
        found.add(metric, value)
    pairs = len(predicted) * (len(predicted) - 1) // 2
    name = f"{what}ranking of {len(predicted)} cases: pairs in the wrong order"
    found.add(Metric(name, "", target=0, spread=f"of {pairs} pairs"), wrong_pairs(predicted, measured))


def _baselines(found: Figures, recordings: Mapping[Shape, Recording], measured: Mapping[Case, float]) -> None:
    """Add the errors of simpler predictions."""
    sums = {case: _naive_sum(recordings[case.recorded], case) for case in CASES}
    alone = {case: _idle_alone(recordings[case.recorded], case) for case in CASES}
    for name, predicted in (
        ("computation plus communication, idle links", sums),
        ("each rank alone, idle links", alone),
    ):
        errors = [_error(predicted[case], measured[case]) for case in CASES]
        spread = f"{min(errors):.0f} to {max(errors):.0f}, {len(errors)} cases"
        found.add(Metric(f"baseline: {name}: median error", "%", spread=spread), statistics.median(errors))
        pairs = Metric(f"baseline: {name}: pairs in the wrong order", "", spread=f"{len(errors)} cases")
        found.add(pairs, wrong_pairs(predicted, measured))


def _idle_links(recording: Recording, case: Case) -> RingModel:
    idle = recording.idle
    if idle is None:
        raise ValueError("the recording has no times of idle links")
    return RingModel(idle.latency_us, idle.bytes_per_us * case.speed, idle.ranks)


def _naive_sum(recording: Recording, case: Case) -> float:
    """Return the milliseconds of the computation alone, plus those of the communications one by one."""
    job, idle = rebucketed(recording.job, case.bucket_bytes), _idle_links(recording, case)
    links = Links(idle.latency_us, idle.bytes_per_us, Sharing.NONE)
    free = replay_together(job, Links(0, 1e12, Sharing.NONE)).step_times()
    total = sum(one.steps * links.latency_us + one.bytes / links.bytes_per_us for one in job.transfers)
    return (statistics.median(free) + total / len(free)) / 1e3


def _idle_alone(recording: Recording, case: Case) -> float:
    """Return the milliseconds of a step, with each rank replayed alone on links that nothing shares."""
    job, idle = rebucketed(recording.job, case.bucket_bytes), _idle_links(recording, case)
    return statistics.median(Together([replay(one, idle) for one in job.traces]).step_times()) / 1e3


def _controls(
    found: Figures,
    predicted: Mapping[Case, float],
    measured: Mapping[Case, float],
    recorded: Mapping[Case, float],
) -> None:
    """Add what must go wrong: predictions of other cases, and the recorded step for slow links."""
    cases = list(predicted)
    shuffled = {case: predicted[cases[(place + 4) % len(cases)]] for place, case in enumerate(cases)}
    name = "negative control: labels of the cases exchanged: pairs in the wrong order"
    metric = Metric(name, "", target=len(cases), higher_is_better=True, spread=f"{len(cases)} cases")
    found.add(metric, wrong_pairs(shuffled, measured))
    slow = min(cases, key=lambda case: (case.speed, case.shape.ranks))
    name = f"negative control: error of the step recorded at {BASE_RATE / 1e6:g} Mbit/s, taken for {slow}"
    spread = f"recorded {recorded[slow]:.0f} ms, measured {measured[slow]:.0f} ms"
    metric = Metric(name, "%", target=LEAST_SHIFT, higher_is_better=True, spread=spread)
    found.add(metric, _error(recorded[slow], measured[slow]))
