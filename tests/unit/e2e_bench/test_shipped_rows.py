"""Tests of the figures that follow from the report of a shipped experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e.bench.experiments.shipped import add_rows, keep

from convoy_workloads.bench.figures import Figures

EFFECT = {"effect": 3.5, "low": 1.0, "high": 6.0, "verdict": "Supported", "p": 0.004, "blocks": 9}
RESULT: dict[str, Any] = {
    "experiment": "journal",
    "blocks": {"planned": 9, "ended": 9, "failed": 1},
    "controls": [{"passed": True}, {"passed": False}],
    "hypotheses": [
        {
            "prediction": "shorter",
            "outcome": "seconds",
            "candidate": "journal",
            "comparator": "full",
            "unit": "s",
            **EFFECT,
        }
    ],
}


def rows(**changes: Any) -> dict[str, dict[str, Any]]:
    found = Figures()
    add_rows(found, {**RESULT, **changes}, 90.0)
    return {row["metric"]: row for row in found.rows()}


def test_each_figure_has_its_target() -> None:
    found = rows()
    assert {name: (row["value"], row["met"]) for name, row in found.items()} == {
        "journal: ended blocks": (9, True),
        "journal: failed blocks": (1, False),
        "journal: failed controls": (1, False),
        "journal: time": (1.5, None),
        "journal, shorter: effect on seconds, journal against full": (3.5, None),
    }
    shorter = found["journal, shorter: effect on seconds, journal against full"]
    assert shorter["spread"] == "Supported, interval 1 to 6, p 0.004, 9 blocks"


def test_an_invalid_experiment_has_no_effects() -> None:
    bare = {name: value for name, value in RESULT["hypotheses"][0].items() if name not in EFFECT}
    found = rows(hypotheses=[{**bare, "p": 1, "blocks": 0}])
    row = found["journal, shorter: effect on seconds, journal against full"]
    assert row["value"] is None and row["spread"] == "no verdict, p 1, 0 blocks"


@pytest.mark.parametrize("before", [False, True])
def test_a_kept_report_replaces_the_earlier_one(tmp_path: Path, before: bool) -> None:
    report, folder = tmp_path / "report", tmp_path / "kept"
    report.mkdir()
    (report / "result.json").write_text("{}")
    if before:
        folder.mkdir()
        (folder / "old.json").write_text("{}")
    keep(report, folder)
    assert [path.name for path in folder.iterdir()] == ["result.json"]
