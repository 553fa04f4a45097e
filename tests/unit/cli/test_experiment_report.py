"""Tests of `convoy experiment report` and `verify`: files in a store on a volume, and their comparison."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit.cli.saved_job import SavedJobStore
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.cli.experiment import artefact, report
from convoy.cli.experiment.status_check import status_differences
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_crds.experiment_status import ExperimentStatus
from convoy_workloads.engines.experiment_analysis.file_state import EXTRA, FileState
from convoy_workloads.runtime.tiers import shard
from convoy_workloads.runtime.tiers.planning import StateSnapshot, plan_save

from .experiments import ENDED, VERDICT, experiment

FILES = {"report.html": b"<html>", "plan.json": b"{}"}


def as_shard(files: Mapping[str, bytes], prefix: str = artefact.PREFIX) -> bytes:
    """Return a shard that holds the files as tensors of bytes."""
    tensors = [torch.tensor(list(one), dtype=torch.uint8) for one in files.values()]
    wanted = [(prefix + name, ((0,), (len(one),)), (len(one),), torch.uint8) for name, one in files.items()]
    layout = shard.lay_out(wanted, 4096)
    room = bytearray(layout.size)
    shard.write(memoryview(room), layout, tensors, {}, {})
    return bytes(room)


class Saved(SavedJobStore):
    """An experiment whose analysis job has files in a store on a volume."""

    def __init__(self, disk: Path, monkeypatch: pytest.MonkeyPatch, **status: Any) -> None:
        super().__init__(
            Volume(disk, "part"), {"volume": {"claimName": "shared", "path": "part"}}, monkeypatch
        )
        made = experiment(**{**ENDED, **status})
        self.cluster.experiments = SimpleNamespace(get=lambda _: made)  # type: ignore[attr-defined]
        monkeypatch.setattr(artefact, "connect_cluster", lambda *_: self.cluster)
        self.disk = disk

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["experiment", *words, "--folder", str(self.disk)])


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.chdir(tmp_path)
    return Saved(disk, monkeypatch)


def test_the_report_comes_with_all_files(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.save((1, 1), {"0": [as_shard(FILES)]})
    opened: list[str] = []
    monkeypatch.setattr(report.webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setitem(sys.modules, "torch", None)  # Reading a report needs no torch.
    done = saved.run("report", "trial", "--open")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "trial-report"
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == FILES
    assert opened == [(folder / "report.html").as_uri()]
    again = saved.run("report", "trial")
    assert again.exit_code == 1 and "is not empty" in again.output


def test_the_newest_files_count(saved: Saved, tmp_path: Path) -> None:
    saved.save((1, 1), {"0": [as_shard({"a": b"old"})]})
    saved.save((2, 1), {"0": [as_shard({"a": b"new"})]})
    assert saved.run("report", "trial", "--output", "out").exit_code == 0
    assert (tmp_path / "out" / "a").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("files", "prefix", "why"),
    [
        ({"../evil": b"x"}, artefact.PREFIX, "'../evil' is not a valid file name"),
        ({".hidden": b"x"}, artefact.PREFIX, "'.hidden' is not a valid file name"),
        ({"weight": b"x"}, "model.", "a checkpoint of another job"),
    ],
)
def test_a_checkpoint_that_is_no_artefact_is_refused(
    saved: Saved, tmp_path: Path, files: dict[str, bytes], prefix: str, why: str
) -> None:
    saved.save((1, 1), {"0": [as_shard(files, prefix)]})
    done = saved.run("report", "trial")
    assert done.exit_code == 1 and why in done.output
    assert not (tmp_path / "trial-report").exists() and not (tmp_path / "evil").exists()


def test_a_damaged_file_is_never_written(saved: Saved, tmp_path: Path) -> None:
    (chunk,) = saved.save((1, 1), {"0": [as_shard(FILES)]})["0"].chunks
    path = next(saved.disk.rglob(f"chunks/{chunk.digest}"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    done = saved.run("report", "trial")
    assert done.exit_code == 1, done.output
    assert not (tmp_path / "trial-report").exists()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", "artefact": None}, "has no report yet, because it is Running"),
        ({"phase": "Failed", "artefact": None}, "ended without a report (VerdictsReady): 1 Supported"),
    ],
)
def test_an_experiment_without_a_report_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = Saved(tmp_path, monkeypatch, **status).run("report", "trial")
    assert done.exit_code == 1 and why in done.output


def test_store_and_uid_go_together(saved: Saved) -> None:
    done = saved.run("report", "trial", "--store", "s3")
    assert done.exit_code == 1 and "--store and --uid go together" in done.output


# verify


def files(**changes: Any) -> dict[str, bytes]:
    """Return the data and the result that agree with the status `ENDED`."""
    status = ExperimentStatus.model_validate(ENDED)
    blocks = [one.to_dict() for one in status.blocks]
    hypothesis = {"prediction": "p", "perturbation": "", "verdict": VERDICT["verdict"]}
    data = {"blocks": blocks, **changes.get("data", {})}
    controls = [{"name": "A/A", "passed": True, "message": "other words"}]
    result = {"hypotheses": [hypothesis], "controls": controls, **changes.get("result", {})}
    return {"data.json": json.dumps(data).encode(), "result.json": json.dumps(result).encode()}


def test_a_status_that_agrees_has_no_differences() -> None:
    assert list(status_differences(files(), ExperimentStatus.model_validate(ENDED))) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"data": {"blocks": []}}, "status.blocks 0: status {"),
        ({"result": {"hypotheses": []}}, 'status.verdicts p: status "Supported", store nothing'),
        (
            {"result": {"hypotheses": [{"prediction": "p", "verdict": "Undecided"}]}},
            'status.verdicts p: status "Supported", store "Undecided"',
        ),
        ({"result": {"controls": []}}, "status.controls A/A: status true, store nothing"),
    ],
)
def test_each_difference_of_the_status_is_named(changes: dict[str, Any], line: str) -> None:
    found = list(status_differences(files(**changes), ExperimentStatus.model_validate(ENDED)))
    assert found and found[0].startswith(line)


def test_the_files_of_the_analysis_have_the_names_that_the_command_reads() -> None:
    state = {"extra": {EXTRA: FileState(FILES).state_dict()}}
    plan = plan_save(StateSnapshot(state))
    names = {part.name for part in plan.layout.parts}
    assert names == {artefact.PREFIX + name for name in FILES}
