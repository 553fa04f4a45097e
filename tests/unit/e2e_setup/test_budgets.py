"""Tests of the times and budgets of the layers of `make test`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from e2e.setup import budgets
from e2e.setup.budgets import BUDGETS, LayerTime

UNIT = LayerTime(171.4, 300.2, True, "abc1234", "2026-01-02")
DOCUMENT = {
    "name": "setup",
    "rows": [
        {"metric": "make demo", "value": 9},
        {"metric": "layers of make test: unit", "value": 359, "baseline": 359},
    ],
}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (171.4, "unit: 171 s of 240 s (300 s of processor time)"),
        (240.0, "unit: 240 s of 240 s (300 s of processor time)"),
        (
            250.4,
            "unit: 250 s of 240 s (300 s of processor time)\nwarning: unit is over its budget by 10 s",
        ),
    ],
)
def test_a_run_prints_its_time_and_budget(seconds: float, text: str) -> None:
    assert budgets.line("unit", replace(UNIT, seconds=seconds)) == text


def test_the_table_lists_the_stored_layers_and_their_sum() -> None:
    times = {"unit": UNIT, "lint": replace(UNIT, seconds=60.0, processor_seconds=50.0)}
    assert [row.split() for row in budgets.table(times).splitlines()] == [
        ["layer", "seconds", "budget", "processor"],
        ["lint", "60", "90", "50"],
        ["unit", "171", "240", "300"],
        ["all", "231", "330", "350"],
    ]
    assert sum(BUDGETS.values()) == 25 * 60


def test_a_recorded_layer_replaces_its_row_and_keeps_the_baseline() -> None:
    found = budgets.with_rows(DOCUMENT, {"unit": UNIT, "e2e": replace(UNIT, seconds=700.0)})
    demo, unit, e2e = found["rows"]
    assert demo == DOCUMENT["rows"][0]
    assert (unit["value"], unit["baseline"], unit["ratio"]) == (171, 359, 2.1)
    assert (unit["target"], unit["met"], unit["kind"]) == (240, True, "measured")
    assert unit["spread"].startswith("2026-01-02, abc1234: one run, 300 s of processor time; baseline")
    assert (e2e["metric"], e2e["baseline"], e2e["met"]) == ("layers of make test: e2e", None, False)


def test_times_are_stored_by_layer(tmp_path: Path) -> None:
    path = tmp_path / "build" / "times.json"
    assert budgets.read_times(path) == {}
    budgets.keep(path, "unit", replace(UNIT, seconds=1.0))
    budgets.keep(path, "lint", UNIT)
    budgets.keep(path, "unit", UNIT)
    assert budgets.read_times(path) == {"unit": UNIT, "lint": UNIT}
    assert [one.name for one in path.parent.iterdir()] == ["times.json"]


def test_a_command_is_timed_and_its_status_is_returned() -> None:
    busy = "import sys, time\nwhile time.process_time() < 0.2: pass\nsys.exit(7)"
    status, seconds, processor = budgets.run_timed([sys.executable, "-c", busy])
    assert status == 7 and seconds >= 0.2 and processor >= 0.2
    assert budgets.run_timed([sys.executable, "-c", "import os; os.abort()"])[0] == 134


def test_sigterm_is_forwarded_to_the_command(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "time.sleep(50)\n"
    )
    runs = "import sys; from e2e.setup import budgets; sys.exit(budgets.run_timed(sys.argv[1:])[0])"
    with subprocess.Popen(
        [sys.executable, "-c", runs, sys.executable, str(script)],
        cwd=budgets.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        started = time.monotonic()
        run.terminate()
        assert run.wait(timeout=40) == 3
        assert time.monotonic() - started < 40


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "unit"], ["run", "nothing", "true"], ["tables"]])
def test_a_wrong_call_runs_nothing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert budgets.main(arguments) == 2
    assert "usage: budgets run {lint,docs,unit,integration,e2e}" in capsys.readouterr().err


def test_subcommands_run_store_and_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "setup.json"
    rows.write_text(json.dumps({"rows": []}))
    monkeypatch.setattr(budgets, "TIMES", tmp_path / "times.json")
    monkeypatch.setattr(budgets, "ROWS", rows)
    assert budgets.main(["run", "docs", "true"]) == 0
    assert budgets.main(["run", "lint", "false"]) == 1
    assert budgets.main(["table"]) == 0
    assert budgets.main(["record"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"docs: \d+ s of 30 s", output) and "all" in output
    (row,) = json.loads(rows.read_text())["rows"]
    assert row["metric"] == "layers of make test: docs", "a run that failed is not recorded"
    assert row["met"] and row["value"] >= 1
