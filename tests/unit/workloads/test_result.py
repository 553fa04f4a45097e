"""Tests of a program's result: its encoding, its file, and the termination message."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import convoy
from convoy_crds import job_result
from convoy_workloads.launcher import termination_log
from convoy_workloads.launcher.heartbeat_files import HeartbeatFiles
from convoy_workloads.runtime import result
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.result import ResultError, encode_result


class Scalar:
    """An array of one element, as in NumPy and torch."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def item(self) -> Any:
        return self._value


def test_runtime_and_operator_have_the_same_limits() -> None:
    assert result.MAX_RESULT_BYTES == job_result.MAX_RESULT_BYTES
    assert result.MAX_RESULT_DEPTH == job_result.MAX_RESULT_DEPTH


def test_a_result_is_compact_json_that_the_operator_accepts() -> None:
    given = {"p99Ms": Scalar(1.5), "steps": 3, "names": ("é", None), "ok": True, "deep": {"x": []}}
    text = encode_result(given)
    assert text == '{"p99Ms":1.5,"steps":3,"names":["é",null],"ok":true,"deep":{"x":[]}}'
    assert job_result.parse_result(text) == json.loads(text)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": {"b": [0.5, math.nan]}}, r"result\['a'\]\['b'\]\[1\]: nan is not a finite number"),
        ({"a": Scalar(math.inf)}, r"result\['a'\]: inf is not a finite number"),
        ({"a": 2**63}, r"result\['a'\]: the whole number needs more than 64 bits"),
        ({"a": object()}, r"result\['a'\]: a object cannot be stored as JSON"),
        ({1: 2}, "result: the name 1 is not a text"),
        ([1], "the result must be a dict, not list"),
        (nested(9), "more than 8 nested"),
        ({"a": "\ud800"}, "not valid Unicode"),
        ({"a": "x" * 3500}, "has 3508 bytes as JSON, but at most 3500"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(value: Any, problem: str) -> None:
    assert convoy.ResultError is ResultError
    with pytest.raises(ResultError, match=problem):
        encode_result(value)


def test_the_largest_result_is_accepted() -> None:
    text = encode_result({"a": "x" * 3492})
    assert len(text) == 3500 and job_result.parse_result(text)
    assert job_result.parse_result(encode_result(nested(8))) == nested(8)


def test_only_rank_0_writes_its_newest_result(tmp_path: Path) -> None:
    path = tmp_path / "result"
    Job(RankContext(result=str(path)), {}).set_result({"a": 1})
    Job(RankContext(result=str(path)), {}).set_result({"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    Job(RankContext(rank=1, result=str(tmp_path / "other")), {}).set_result({"a": 3})
    with pytest.raises(ResultError):
        Job(RankContext(rank=1), {}).set_result({"a": math.nan})
    assert [one.name for one in tmp_path.iterdir()] == ["result"]


def test_a_program_outside_a_job_prints_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    Job(RankContext(), {}).set_result({"a": 1})
    assert capsys.readouterr().err == 'convoy: result: {"a":1}\n'


def test_incarnations_have_different_result_files() -> None:
    files = HeartbeatFiles()
    try:
        assert files.result_path(1) and files.result_path(1) != files.result_path(2)
    finally:
        files.remove()


def test_the_result_becomes_the_termination_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setattr(termination_log, "TERMINATION_LOG", str(log))
    termination_log.leave_result('{"a": 1}')
    assert not log.exists()  # Only a kubelet creates the file.
    log.touch()
    termination_log.leave_result("")
    assert log.read_text() == ""
    termination_log.leave_result('{"a": "é"}')
    assert log.read_text(encoding="utf-8") == '{"a": "é"}'
