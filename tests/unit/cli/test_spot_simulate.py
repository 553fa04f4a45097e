"""Tests of `convoy spot simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app


def run(*words: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["spot", *words], input=stdin)


def test_policies_are_compared_on_a_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("time,count\n0,4\n2,0\n3,2\n6,2\n")
    words = ("simulate", "--trace", str(file), "--unit", "hours", "--nodes", "4", "--hours", "6")
    found = json.loads(run(*words, "--format", "json").output)
    assert (found["trace"]["nodes"], found["trace"]["largestDrop"]) == (4, 4)
    costs = {name: one["cost"] for name, one in found["policies"].items()}
    assert costs["OnDemand"] == 24.0
    assert costs["SpotOnly"] == pytest.approx(0.27 * (4 * 2 + 2 * 3))
    assert costs["SpotOnly"] < costs["Pool"] < costs["OnDemand"]
    text = run(*words).output
    assert text.startswith("trace: 4 nodes at most, 6.0 h, availability 58%")
    assert [line.split()[0] for line in text.splitlines()[3:6]] == ["OnDemand", "SpotOnly", "Pool"]
    assert "workers on nodes, policy Pool, by hour" in text


def test_the_model_and_the_recorded_traces_need_no_file() -> None:
    for name in ("v100-4-nodes", "g4dn-us-east-1c"):
        words = (
            "simulate",
            "--model",
            name,
            "--nodes",
            "12",
            "--zones",
            "3",
            "--hours",
            "24",
            "--format",
            "json",
        )
        first, again = run(*words), run(*words)
        assert first.output == again.output
        assert json.loads(first.output)["trace"]["losses"] > 10


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (("--trace", "-"), "0,1\n5,1\n4,1\n", "-: line 3: time 4 is before the time of the row above"),
        (("--trace", "-"), "", "-: the trace has no rows"),
        (("--trace", "/no/such/file"), None, "/no/such/file: No such file or directory"),
        (
            ("--trace", "-", "--unit", "days"),
            "0,1\n5,1\n",
            "--unit must be one of seconds, minutes, hours, not 'days'",
        ),
        (("--model", "v100"), None, "trace: 'v100' is unknown; use one of v100-calm"),
        (("--nodes", "0"), None, "nodes: Input should be greater than or equal to 1"),
        (("--after", "3x"), None, "fallback.after: "),
    ],
)
def test_bad_input_is_refused_with_its_place(words: tuple[str, ...], stdin: str | None, message: str) -> None:
    result = run("simulate", *words, stdin=stdin)
    assert result.exit_code == 1
    assert f"error: {message}" in result.output
