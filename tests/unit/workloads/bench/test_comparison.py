"""Tests of the comparison of two programs: alternating runs, ratios, values that must be equal, and the
control. Most tests use invented trials, some use real processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest

from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import (
    Bench,
    Equality,
    Measure,
    alternate,
    broken,
    compare,
    median_interval,
    ratio,
)
from convoy_workloads.bench.trial import Trial, TrialError, run

RATE = Measure(
    name="rate",
    unit="1/s",
    value_of=lambda trial: 1 / float(trial.result["seconds"]),
    higher_is_better=True,
    target=1.5,
)
SECONDS = Measure(name="time", unit="seconds", value_of=lambda trial: float(trial.result["seconds"]))
Results = Mapping[str, Callable[[int], dict[str, Any]]]


def arm(name: str) -> Arm:
    return Arm(name, lambda result: [])


def trials(*seconds: float) -> list[Trial]:
    return [Trial(one, one, {"seconds": one}) for one in seconds]


class Scripted:
    """Stands in for the run of an arm: returns the arm's prepared result for the number of the run."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.order: list[str] = []

    def __call__(self, arm: Arm) -> Trial:
        number = self.order.count(arm.name)
        self.order.append(arm.name)
        return Trial(1.0, 1.0, self.results[arm.name](number))


def bench(**more: Any) -> Bench:
    arms = Arms(arm("ours"), (arm("theirs"),), arm("theirs again"))
    return Bench(
        sizes={"small": {}, "full": {}},
        arms=lambda options: arms,
        measures=lambda options: [RATE, SECONDS],
        equal=[Equality(key="sum", name="sum"), Equality(key="bits", name="bits")],
        rounds=3,
        **more,
    )


def result(seconds: float, total: float = 1.0, bits: str = "a") -> Callable[[int], dict[str, Any]]:
    """Return a function that gives the result of run `number`. Each run takes 1.5 times as long as the
    previous run.
    """
    return lambda number: {"seconds": seconds * 1.5**number, "sum": total, "bits": bits}


def test_arms_alternate_and_none_is_always_first() -> None:
    order = Scripted({name: result(1) for name in "ab"})
    found = alternate([arm("a"), arm("b")], 3, order)
    assert order.order == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(runs) for name, runs in found.items()} == {"a": 3, "b": 3}


def test_a_ratio_compares_one_round_and_exceeds_1_where_convoy_is_better() -> None:
    assert ratio(SECONDS, trials(1, 10, 100), trials(2, 20, 200)).median == 2
    assert ratio(RATE, trials(1, 10, 100), trials(2, 20, 200)).median == pytest.approx(2)
    spread = ratio(SECONDS, trials(1, 1, 1, 1, 1), trials(0.5, 1, 1, 1, 2))
    assert spread.low < spread.median == 1 < spread.high


@pytest.mark.parametrize(
    ("count", "ends", "level"),
    [(1, (0, 0), 0.0), (5, (0, 4), 0.9375), (7, (0, 6), 0.984375), (9, (1, 7), 0.9609375)],
)
def test_the_interval_of_a_median_has_the_level_that_it_names(
    count: int, ends: tuple[float, float], level: float
) -> None:
    assert median_interval([float(one) for one in reversed(range(count))]) == (*ends, level)


def test_the_rows_of_a_comparison() -> None:
    figures = compare(
        bench(), run_once=Scripted({"ours": result(1), "theirs": result(2), "theirs again": result(2.02)})
    )
    rows = {row["metric"]: row for row in figures.rows()}
    assert list(rows) == [
        "rate: ours",
        "rate: theirs",
        "rate: ours, times better than theirs",
        "negative control: theirs again, gain over theirs",
        "time: ours",
        "time: theirs",
        "time: ours, times better than theirs",
        "equality: sum",
        "equality: bits",
    ]
    gain = rows["rate: ours, times better than theirs"]
    assert (gain["value"], gain["met"], gain["kind"]) == (2, True, "measured")
    assert gain["spread"] == "75%: 2.000 to 2.000, 3 rounds"
    assert rows["negative control: theirs again, gain over theirs"]["met"] is True
    assert rows["rate: ours"]["spread"] == "0.444 to 1.0, n=3"
    assert broken(figures) == []


@pytest.mark.parametrize(
    ("ours", "again", "missed"),
    [
        (result(1, total=1.1), result(2), ["equality: sum"]),
        (result(1, bits="b"), result(2), ["equality: bits"]),
        (result(1), result(1), ["negative control: theirs again, gain over theirs"]),
    ],
    ids=["another number", "other bits", "a gain without the mechanism"],
)
def test_a_figure_is_not_published_if_a_condition_is_not_met(
    ours: Any, again: Any, missed: list[str]
) -> None:
    results = {"ours": ours, "theirs": result(2), "theirs again": again}
    assert broken(compare(bench(), run_once=Scripted(results))) == missed


@pytest.mark.parametrize(
    ("size", "seconds", "gain", "met"),
    [
        ("full", 2.4, -0.167, False),
        ("full", 2.15, -0.0698, True),
        ("full", 2.0, 0.0, True),
        ("full", 1.85, 0.0811, True),
        ("full", 1.8, 0.111, False),
        ("small", 1.0, 1.0, None),
    ],
    ids=["a loss", "a small loss", "equal", "within the tolerance", "a gain", "a small run is not judged"],
)
def test_the_negative_control_fails_for_a_gain_or_a_loss_in_a_full_run(
    size: Literal["small", "full"], seconds: float, gain: float, met: bool | None
) -> None:
    results = {"ours": result(1), "theirs": result(2), "theirs again": result(seconds)}
    figures = compare(bench(), size, run_once=Scripted(results))
    (row,) = [row for row in figures.rows() if row["metric"].startswith("negative control: ")]
    assert (row["value"], row["met"]) == (pytest.approx(gain), met)
    assert broken(figures) == ([row["metric"]] if met is False else [])


def test_numbers_are_equal_within_their_tolerance() -> None:
    close = bench()
    close = Bench(**{**vars(close), "equal": [Equality(key="sum", name="sum", tolerance=0.2)]})
    results = {"ours": result(1, total=1.1), "theirs": result(2), "theirs again": result(2)}
    assert broken(compare(close, run_once=Scripted(results))) == []


def test_every_row_has_the_label_of_the_benchmark() -> None:
    results = {"ours": result(1), "theirs": result(2), "theirs again": result(2)}
    figures = compare(bench(label="calibrated simulation"), run_once=Scripted(results))
    assert {row["kind"] for row in figures.rows()} == {"calibrated simulation"}


def test_a_function_runs_in_its_own_process_with_its_time_and_result() -> None:
    trial = run(function("arm", dict, {"steps": 7}))
    assert trial.result == {"steps": 7}
    assert trial.processor_seconds > 0
    assert trial.seconds > 0


def test_processes_that_outlive_their_parent_are_counted() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    orphan = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn!r}])"
    script = f"{orphan}\nopen(sys.argv[1], 'w').write('{{}}')"
    trial = run(Arm("orphan", lambda result: [sys.executable, "-c", script, str(result)]))
    assert trial.processor_seconds > 0.3


def test_a_failed_arm_reports_its_error() -> None:
    failing = Arm("bad", lambda result: [sys.executable, "-c", "raise SystemExit('no such data')"])
    with pytest.raises(TrialError, match=r"(?s)bad ended with exit code 1:.*no such data"):
        run(failing)
    slow = Arm("slow", lambda result: [sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(TrialError, match="ran longer than 1 s"):
        run(slow, deadline=1)
