"""Tests of the recorder, with torch's own observers in one process."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.gloo_threads import gloo_threads, match_threads
from convoy_workloads.traces.record import Recorder, record
from convoy_workloads.traces.size_watch import SizeWatch
from convoy_workloads.traces.torch_json.document import load_json

torch = pytest.importorskip("torch")


def train(recorder: Recorder, steps: range) -> None:
    with recorder:
        for step in steps:
            with recorder.step(step):
                torch.ones(4) + torch.ones(4)


def test_the_chosen_steps_are_recorded(tmp_path: Path) -> None:
    recorder = record(tmp_path / "traces", range(3, 5), rank=2)
    train(recorder, range(1, 7))
    assert recorder.problem == ""
    assert sorted(tmp_path.rglob("*.json")) == sorted(recorder.files)
    assert [one.name for one in recorder.files] == ["host.2.json", "kineto.2.json"]
    host, kineto = map(load_json, recorder.files)
    trace = convert(host, kineto, rank=2).trace
    names = [node.name for node in trace.nodes]
    assert sorted(set(names) & {f"ProfilerStep#{step}" for step in range(9)}) == [
        "ProfilerStep#3",
        "ProfilerStep#4",
    ]
    assert names.count("aten::add") == 2


@pytest.mark.parametrize(("ranks", "rank"), [([0], 1), ([], 0)])
def test_other_ranks_record_nothing(tmp_path: Path, ranks: list[int], rank: int) -> None:
    train(record(tmp_path / "traces", range(3), ranks, rank=rank), range(3))
    assert list(tmp_path.iterdir()) == []


def test_a_loop_that_ends_early_leaves_what_it_has(tmp_path: Path) -> None:
    recorder = record(tmp_path, range(3), rank=0)
    train(recorder, range(2))
    assert len(recorder.files) == 2


def test_a_trace_beyond_the_budget_is_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = record(tmp_path, range(3), rank=0, max_bytes=100)
    train(recorder, range(5))
    assert "100" in recorder.problem
    assert f"rank 0 has no trace: {recorder.problem}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_writes_too_much_is_ended_within_the_step(tmp_path: Path) -> None:
    recorder = record(tmp_path, range(3), rank=0, max_bytes=100_000)
    deadline = time.monotonic() + 60
    with recorder, recorder.step(0):
        while not recorder.problem and time.monotonic() < deadline:
            torch.ones(4) + torch.ones(4)
        assert recorder.problem and recorder.too_large
        assert list(tmp_path.iterdir()) == []
        torch.ones(4)
    again = record(tmp_path, range(1), rank=0)
    train(again, range(1))
    assert len(again.files) == 2


def test_another_thread_than_the_main_one_is_checked_after_each_step(tmp_path: Path) -> None:
    recorder = record(tmp_path, range(3), rank=0, max_bytes=10_000)
    thread = threading.Thread(target=train, args=(recorder, range(3)))
    thread.start()
    thread.join(60)
    assert recorder.too_large and list(tmp_path.iterdir()) == []


def test_watch_that_was_stopped_calls_nothing(tmp_path: Path) -> None:
    """The call may already be on its way when the recording ends."""
    called: list[str] = []
    path = tmp_path / "file"
    for stopped in (True, False):
        watch = SizeWatch(path, 0, lambda: called.append("called"))
        if stopped:
            watch.stop()
        watch._call_unless_stopped()
        watch.stop()
    assert called == ["called"]


def test_shapes_stand_in_one_file(tmp_path: Path) -> None:
    recorder = record(tmp_path, range(1), rank=0)
    train(recorder, range(1))
    host, kineto = map(load_json, recorder.files)
    (add,) = (one for one in host["nodes"] if one["name"] == "aten::add")
    assert add["inputs"]["shapes"][:2] == [[4], [4]]
    assert not any("Input Dims" in one.get("args", {}) for one in kineto["traceEvents"])


def test_a_failed_loop_leaves_no_file_and_the_next_one_records(tmp_path: Path) -> None:
    recorder = record(tmp_path, range(2), rank=0)
    with pytest.raises(ZeroDivisionError), recorder, recorder.step(0):
        _ = 1 / 0
    assert recorder.problem == "the loop failed"
    assert list(tmp_path.iterdir()) == []
    again = record(tmp_path, range(1), rank=0)
    train(again, range(1))
    assert len(again.files) == 2


def test_a_folder_that_cannot_be_made_does_not_fail_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = record(tmp_path / "file" / "traces", range(2), rank=0)
    train(recorder, range(3))
    assert recorder.problem.startswith("the recording did not start: ")


@pytest.mark.parametrize("steps", [range(0), range(101), range(0, 10, 2), range(-1, 1)])
def test_steps_are_checked(steps: range) -> None:
    with pytest.raises(ValueError, match="steps: must be 1 to 100 consecutive steps"):
        record(Path("traces"), steps)


def test_the_rank_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    recorder = record(tmp_path, range(1))
    train(recorder, range(1))
    assert [one.name for one in recorder.files] == ["host.3.json", "kineto.3.json"]
    assert json.loads(recorder.files[1].read_text())["convoy"] == {"threads": {}}


def test_threads_of_gloo_in_the_order_of_their_start(tmp_path: Path) -> None:
    fields = " ".join(["0"] * 18)
    for task, name, started in (
        ("9", "pt_gloo_runloop", 70),
        ("8", "pt_gloo_runloop", 71),
        ("7", "python", 1),
    ):
        (tmp_path / task).mkdir()
        (tmp_path / task / "comm").write_text(f"{name}\n")
        (tmp_path / task / "stat").write_text(f"{task} ({name}) S {fields} {started} 0")
    assert gloo_threads(tmp_path) == ["9", "8"]
    assert gloo_threads(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("names", "threads", "expected"),
    [
        (["0", "1"], ["5", "6", "8", "9"], {"5": "0", "6": "0", "8": "1", "9": "1"}),
        (["0"], ["5", "6", "8", "9"], {}),
        ([], [], {}),
    ],
)
def test_groups_of_threads(names: list[str], threads: list[str], expected: dict[str, str]) -> None:
    assert match_threads(names, threads) == expected
