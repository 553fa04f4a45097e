"""Tests of the bench of spotlight: its arms, the results that it keeps, and its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e.bench.spotlight import runs
from e2e.bench.spotlight.comparison import add_figures, add_ratios
from e2e.bench.spotlight.parts import PARTS, SIZES, TUNING_SEEDS, Study
from e2e.bench.spotlight.runs import Found, RunTask, Store, merged

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.spotlight.arms import ARMS, CONTROL, IDEAS, SPOTLIGHT, STRONGEST
from convoy_workloads.simulators.run import parsed
from convoy_workloads.simulators.spotlight.params import Params


def found(hours: float, censored: bool = False) -> Found:
    names = ("rewardAtTime", "rewardAtSpend", "zeroContrastRatio", "exploredSeeds", "rankCorrelation")
    spot = ("idleSpotRatio", "lostSpotRatio", "regroupSpotRatio", "residual", "offeredNodeHours")
    figures = dict.fromkeys((*names, *spot), 0.5)
    return Found(
        {**figures, "hoursToTarget": hours, "costToTarget": 4 * hours, "iterationsToTarget": 20 * hours},
        censored,
    )


@pytest.mark.parametrize("size", SIZES)
def test_arms_are_valid_and_tuned_alike(size: str) -> None:
    assert len({one.name for one in (*ARMS, *IDEAS)}) == len(ARMS) + len(IDEAS)
    assert {SPOTLIGHT, STRONGEST, CONTROL} <= {one.name for one in ARMS}
    for arm in (*ARMS, *IDEAS):
        params = parsed(Params, merged(SIZES[size].params, arm.params), arm.name)
        assert arm.explores == (params.selection != "none")
        assert [one["path"] for one in arm.search][:2] == ["learningRate", "kl"]
    assert SIZES["full"].seeds >= 10 and SIZES["full"].seeds < TUNING_SEEDS


def test_changes_keep_the_other_fields() -> None:
    base = {"cluster": {"spot": 8, "onDemand": 4}, "kl": 0.1}
    assert merged(base, {"cluster": {"spot": 0}}) == {"cluster": {"spot": 0, "onDemand": 4}, "kl": 0.1}
    assert base["cluster"] == {"spot": 8, "onDemand": 4}


def test_a_stopped_bench_goes_on_and_other_code_keeps_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def simulate(task: RunTask) -> dict[str, Any]:
        if task.seed in done:
            raise AssertionError("a known run is computed again")
        done.append(task.seed)
        return {"figures": {"seed": task.seed}, "censored": False}

    monkeypatch.setattr(runs, "simulate", simulate)
    file = tmp_path / "runs.json"
    first = Store(file).runs([RunTask({}, 1), RunTask({}, 2)], map)
    again = Store(file).runs([RunTask({}, 2), RunTask({}, 3), RunTask({}, 1)], map)
    assert [one.figures["seed"] for one in again] == [2, 3, 1]
    assert first[0] == again[2]
    monkeypatch.setattr(runs, "_code_digest", lambda: "other")
    with pytest.raises(runs.OtherCode, match=r"runs\.json has the results of other code"):
        Store(file)


def test_ratios_have_intervals_and_say_which_runs_did_not_reach_the_target() -> None:
    engine = [found(1.0 + 0.01 * seed) for seed in range(10)]
    others = {
        "slow": [found(2.0 + 0.03 * seed) for seed in range(10)],
        "never": [found(4.0, censored=True) for _ in range(10)],
    }
    rows = Figures()
    add_ratios(rows, engine, others, {("hoursToTarget", "slow"): 1.9, ("hoursToTarget", "never"): 5.0})
    row = rows.row("time to target, slow / spotlight")
    assert row["value"] == pytest.approx(2.04, abs=0.01) and row["met"] is True
    assert "95%: 2.0" in row["spread"] and "p 0.0039 after Holm, 10 seeds" in row["spread"]
    never = rows.row("time to target, never / spotlight")
    assert never["met"] is False and "not reached: 10 of the arm, 0 of the engine" in never["spread"]
    assert rows.row("cost to target, slow / spotlight")["target"] is None


def test_an_arm_that_never_reaches_the_target_has_no_time() -> None:
    rows = Figures()
    add_figures(rows, "arm", [found(1.0, censored=True), found(2.0, censored=True), found(3.0)])
    assert rows.row("arm: time to target")["value"] is None
    assert rows.row("arm: reward at equal time")["value"] == 0.5


def test_every_simulated_part_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "tune", lambda task: {"arm": task.arm.name, "params": task.params, "atEdge": ["kl"]}
    )
    one = found(1.0)
    figures = {**one.figures, "residual": 0.0}
    monkeypatch.setattr(runs, "simulate", lambda task: {"figures": figures, "censored": False})
    study = Study(SIZES["small"], Store(None), map)
    for name in PARTS:
        if name == "live":  # Starts real workers.
            continue
        rows = Figures()
        PARTS[name](study, rows)
        assert rows.rows(), name
        assert not [
            row["metric"] for row in rows.rows() if row["metric"].startswith("equality") and not row["met"]
        ]
