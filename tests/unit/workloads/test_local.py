from __future__ import annotations

import io
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_crds.engine import Engine
from convoy_crds.trainingjob import Recovery, TrainingJob
from convoy_crds.variables import declared
from convoy_workloads.local import LocalError, run_local
from convoy_workloads.local.environment import pod_environment
from convoy_workloads.local.restart_budget import RestartBudget
from convoy_workloads.local.run import _Run
from convoy_workloads.local.screen import Screen
from convoy_workloads.runtime.folder.storage import locked
from convoy_workloads.runtime.progress import Meter


def job(*env: dict[str, Any]) -> TrainingJob:
    plain = {"image": "mine", "command": ["true"]}
    container = {**plain, "env": list(env)}
    roles = [
        {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}},
        {"name": "other", "replicas": 1, "template": {"spec": {"containers": [plain]}}},
    ]
    return TrainingJob.model_validate({"metadata": {"name": "local"}, "spec": {"roles": roles}})


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ([], {}),
        ([{"name": "A", "value": "1"}], {"A": "1"}),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], {}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/b"}], {"A": "1", "B": "1/b"}),
        ([{"name": "B", "value": "$(A)/b"}, {"name": "A", "value": "1"}], {"B": "$(A)/b", "A": "1"}),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}], {"A": "12"}),
        ([{"name": "A", "value": "$$(A)"}], {"A": "$(A)"}),
        ([{"name": "A"}], {"A": ""}),
    ],
)
def test_a_variable_may_refer_to_earlier_variables(env: list[dict[str, Any]], found: dict[str, str]) -> None:
    worker, other = job(*env).spec.roles
    assert declared(worker) == found
    assert declared(other) == {}


def test_variables_set_by_convoy_override_others_as_in_a_pod() -> None:
    mine = job({"name": "CONVOY_PARAMS", "value": "mine"}, {"name": "LANG", "value": "C"})
    found = pod_environment(mine, "worker", {"LANG": "en", "HOME": "/root"}, Path("/c"))
    assert (found["CONVOY_PARAMS"], found["LANG"], found["HOME"]) == ("{}", "C", "/root")


def test_a_job_without_warm_ranks_has_none_in_a_local_run() -> None:
    cold = job()
    cold.spec.recovery.warm = False
    assert "CONVOY_WARM" not in pod_environment(job(), "worker", {}, Path("/c"))
    assert pod_environment(cold, "worker", {}, Path("/c"))["CONVOY_WARM"] == "false"


@pytest.mark.parametrize(
    ("endings", "words"),
    [
        ([(1, 0), (1, 0), (1, 0)], "3 times in a row a rank ended with exit code 1 before the first step"),
        ([(1, 5), (1, 5), (1, 5)], "3 times in a row a rank ended with exit code 1 after step 5"),
        ([(1, 0), (2, 0), (1, 0), (1, 0)], None),
        ([(1, 0), (1, 5), (1, 0), (1, 0)], None),
        ([(76, 0)] * 4, None),
        ([(137, 0)] * 4, None),
        ([(137, 0)] * 5, "more restarts within 3600 s than spec.recovery.maxRestarts=4 allows"),
    ],
)
def test_a_run_restarts_within_its_budget(endings: list[tuple[int, int]], words: str | None) -> None:
    budget = RestartBudget(Recovery(max_restarts=4))
    lines = [budget.record_failure(float(number), code, step) for number, (code, step) in enumerate(endings)]
    assert not any(lines[:-1])
    assert lines[-1] is words or (words and words in (lines[-1] or ""))


def test_restarts_outside_the_window_do_not_count() -> None:
    budget = RestartBudget(Recovery(max_restarts=1, window_seconds=10, max_identical_errors=0))
    assert [budget.record_failure(now, 1, 0) for now in (0.0, 11.0, 22.0)] == [None] * 3


def test_a_folder_used_by_another_run_is_rejected_before_ranks_start(tmp_path: Path) -> None:
    out = io.StringIO()
    with (
        locked(tmp_path),
        pytest.raises(LocalError, match=f"another run.* keeps its checkpoints in {tmp_path}"),
    ):
        run_local(job(), checkpoint_dir=tmp_path, out=out)
    assert out.getvalue() == "" and list(tmp_path.iterdir()) == []


@pytest.fixture
def screen() -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    return Screen(out, lambda: None), out


def test_a_step_from_two_sources_is_shown_once(screen: tuple[Screen, io.StringIO]) -> None:
    show, out = screen
    show.progress("step 1/9  loss 5.0000  12.4 samples/s")
    show.rank_line(b"[1/0] step 1/9  loss 5.0000  12.5 samples/s\n")
    show.rank_line(b"[1/0] step 2/9  loss 4.0000\n")
    show.progress("step 2/9  loss 4.0000  12.4 samples/s")
    show.progress("step 2/9  loss 4.0000  12.4 samples/s")
    assert out.getvalue() == "step 1/9  loss 5.0000  12.4 samples/s\n[1/0] step 2/9  loss 4.0000\n"


def test_steps_of_other_ranks_and_incarnations_are_shown_separately(
    screen: tuple[Screen, io.StringIO],
) -> None:
    show, out = screen
    show.progress("step 1")
    show.rank_line(b"[1/1] step 1\n")
    show.reset()
    show.progress("step 1")
    assert out.getvalue() == "step 1\n[1/1] step 1\nstep 1\n"


def test_a_closed_output_is_detected_once() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    left: list[int] = []
    show = Screen(Closed(), lambda: left.append(1))
    show.write_line("a")
    show.write_line("b")
    assert left == [1]


@pytest.mark.parametrize("metrics", [{}, {"ratio": 0.125, "held_out_loss": math.nan}])
@pytest.mark.parametrize("loss", [None, 2.5, math.nan])
def test_a_step_is_shown_as_its_rank_writes_it(loss: float | None, metrics: dict[str, float]) -> None:
    meter = Meter(total=9)
    shown: list[str] = []
    meter.observe(1, 0.0, loss=loss, metrics=metrics)
    run: Any = SimpleNamespace(_curve=[], _screen=SimpleNamespace(progress=shown.append))
    _Run._show(run, meter.message(0))
    assert shown == [meter.line()]


def test_metrics_that_the_engine_does_not_declare_are_named_once() -> None:
    spec = {"image": "mine", "command": ["true"], "metrics": [{"name": "declared"}]}
    engine = Engine.model_validate({"metadata": {"name": "own"}, "spec": spec})
    lines: list[str] = []
    run: Any = SimpleNamespace(_engine=engine, _undeclared=set(), _write_line=lines.append)
    figure = {"value": 1.0, "step": 1}
    for names in (["declared"], ["declared", "b", "a"], ["a"], ["c"]):
        _Run._warn_undeclared(run, dict.fromkeys(names, figure))
    words = "Engine own does not declare these metrics, so a cluster drops them: "
    assert lines == [f"{words}a, b", f"{words}c"]
    run._engine = None
    _Run._warn_undeclared(run, {"d": figure})
    assert len(lines) == 2
