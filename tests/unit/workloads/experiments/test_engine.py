"""Tests of the engine experiment-analysis: its results, and what it does without an accepting store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.workloads.experiments.plans import PREDICTION, blocks, plan, shifted

from convoy_crds.experiment_data import pack
from convoy_crds.experiment_hash import plan_hash
from convoy_crds.experiment_status import BlockStatus
from convoy_workloads.engines.experiment_analysis.engine import compute, keep
from convoy_workloads.engines.experiment_analysis.params import Params
from convoy_workloads.experiments.register import spec_of
from convoy_workloads.runtime.errors import ParamsError, StoreAway


class Job:
    """A stand-in for the runtime's job."""

    def __init__(self, params: Params, in_store: bool | None, restored: int = 0) -> None:
        self.params, self.in_store = params, in_store
        self.restored = SimpleNamespace(step=restored)
        self.saved: list[int] = []
        self.state: dict[str, Any] = {}

    def restore(self, model: Any, extra: dict[str, Any]) -> None:
        self.state = extra["files"].state_dict()

    def steps(self, total: int) -> Iterator[int]:
        for step in range(self.restored.step + 1, total + 1):
            yield step
            self.saved.append(step)

    def report(self, step: int) -> None:
        pass


def test_registration_returns_the_hash_and_the_files_of_the_plan() -> None:
    result, files = compute(Params(action="register", plan=plan()))
    assert result == {"planHash": plan_hash(plan())}
    assert set(files) == {"plan.json", "plan.intoto.json"}


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"blocks": 5}, "1 hypotheses at alpha 0.05 need 0.05 (Holm): set blocks to 6 or more"),
        (
            {"blocks": 8, "predictions": [{**PREDICTION, "name": f"p{at}"} for at in range(10)]},
            "10 hypotheses at alpha 0.05 need 0.005 (Holm): set blocks to 9 or more",
        ),
    ],
)
def test_a_plan_that_cannot_decide_anything_is_refused(changes: dict[str, Any], needed: str) -> None:
    with pytest.raises(ParamsError) as error:
        compute(Params(action="register", plan=plan(**changes)))
    assert str(error.value).startswith(f"spec.blocks: with {changes['blocks']} blocks") and needed in str(
        error.value
    )


def test_a_plan_whose_resamples_cannot_decide_anything_is_refused() -> None:
    predictions = [{**PREDICTION, "name": f"p{at}"} for at in range(16)]
    document = plan(blocks=20, predictions=predictions, analysis={"alpha": 0.01, "resamples": 3000})
    with pytest.raises(ParamsError, match=r"^spec\.analysis\.resamples: .* set resamples to 3199 or more"):
        compute(Params(action="register", plan=document))
    document["spec"]["analysis"]["resamples"] = 3199
    assert compute(Params(action="register", plan=document))[0]["planHash"]


def test_a_plan_with_an_unknown_simulator_is_refused() -> None:
    document = plan()
    document["spec"]["arms"][1]["simulation"]["simulator"] = "recovry"
    with pytest.raises(ParamsError, match=r"spec\.arms\[1\]\.simulation.*recovry"):
        compute(Params(action="register", plan=document))


def test_the_analysis_keeps_all_files_of_the_report(tmp_path: Path) -> None:
    document = plan()
    rows = [BlockStatus.model_validate(one) for one in blocks(document, shifted(3))]
    packed = pack(spec_of(document), rows)
    params = Params(action="analyse", plan=document, blocks=packed, folder=str(tmp_path))
    result, files = compute(params)
    assert result["valid"] and result["verdicts"][0][2] == "Supported"
    job: Any = Job(params, in_store=True)
    keep(job, files)
    assert job.saved == [1]
    assert {name: bytes(one.numpy()) for name, one in job.state.items()} == files
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_restarted_job_saves_once_more() -> None:
    job: Any = Job(Params(action="register", plan=plan()), in_store=True, restored=1)
    keep(job, {"plan.json": b"{}"})
    assert job.saved == [2]


@pytest.mark.parametrize("in_store", [False, None])
def test_the_job_fails_only_if_its_store_lacks_the_files(in_store: bool | None) -> None:
    job: Any = Job(Params(action="register", plan=plan()), in_store=in_store)
    if in_store is None:
        keep(job, {"plan.json": b"{}"})
    else:
        with pytest.raises(StoreAway, match="not in it yet"):
            keep(job, {"plan.json": b"{}"})
