"""Tests of `convoy experiment verify` with the real analysis: a folder of files, and files in a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.experiments.plans import blocks, plan, shifted
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.cli.experiment import verify
from convoy.cli.experiment.artefact import Artefact
from convoy.client import NotFound
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_hash import digest, plan_hash
from convoy_workloads.experiments.artefact import result_files

PLAN = plan(blocks=6)
BLOCKS = blocks(PLAN, shifted(3))


@pytest.fixture(scope="module")
def files() -> Mapping[str, bytes]:
    return result_files(PLAN, BLOCKS, [])[1]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["experiment", "verify", *words])


def written(folder: Path, files: Mapping[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "subfolder").mkdir()
    return str(folder)


def test_an_untouched_folder_agrees(files: Mapping[str, bytes], tmp_path: Path) -> None:
    done = run(written(tmp_path, files))
    assert done.exit_code == 0, done.output
    assert done.output.endswith("plan, data, result and report agree with their re-computation\n")


def test_a_changed_figure_is_found(files: Mapping[str, bytes], tmp_path: Path) -> None:
    data = json.loads(files["data.json"])
    data["blocks"][0]["figures"][0]["value"] += 1
    done = run(written(tmp_path, {**files, "data.json": json.dumps(data).encode()}))
    assert done.exit_code == 1
    assert "data.json: digest in result.intoto.json" in done.output
    assert "result.json: hypotheses.0.effect: stored" in done.output
    assert "differs from its re-computation in" in done.output


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.json", None),
        ("plan.json", b"no JSON"),
        ("data.json", b"{}"),
        ("data.json", b"[]"),
        ("plan.json", b'{"name": "toy", "spec": {}, "engines": [{}]}'),
    ],
)
def test_files_that_cannot_be_computed_again_are_an_error(
    files: Mapping[str, bytes], tmp_path: Path, name: str, content: bytes | None
) -> None:
    found = {key: one for key, one in {**files, name: content}.items() if one is not None}
    done = run(written(tmp_path, found))
    assert done.exit_code == 1 and "error: the result cannot be computed again: " in done.output


def test_a_missing_library_is_named(
    files: Mapping[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "convoy_workloads.experiments.verify", None)
    done = run(written(tmp_path, files))
    assert done.exit_code == 1 and "pip install '.[cli,tools]'" in done.output


def test_other_words_of_another_release_are_a_remark(files: Mapping[str, bytes], tmp_path: Path) -> None:
    statement = json.loads(files["result.intoto.json"])
    statement["predicate"]["libraries"]["convoy-operator"] = "0.0.9"
    reworded = {
        "report.md": files["report.md"].replace(b"- Family:", b"- All together:"),
        "result.intoto.json": json.dumps(statement).encode(),
    }
    done = run(written(tmp_path, {**files, **reworded}))
    assert done.exit_code == 0, done.output
    assert "remark: release 0.0.9 of Convoy wrote the files, release " in done.output
    assert "remark: report.md: stored '- All together:" in done.output
    assert done.output.endswith("plan, data, result agree with their re-computation\n")


def test_a_report_with_another_figure_is_no_remark(files: Mapping[str, bytes], tmp_path: Path) -> None:
    forged = files["report.html"].replace(b">Supported</td>", b">Contradicted</td>")
    assert forged != files["report.html"]
    done = run(written(tmp_path, {**files, "report.html": forged}))
    assert done.exit_code == 1 and "report.html: stored '<tr>" in done.output and "<svg" not in done.output


def test_a_missing_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any) -> Artefact:
        raise NotFound("experiment/toy-reprot was not found", 404)

    monkeypatch.setattr(verify, "fetch", fetch)
    assert "there is no folder 'toy-reprot', and in a cluster: experiment/toy" in run("toy-reprot").output
    assert run("./toy").output == "error: there is no folder './toy'\n"


def finished(files: Mapping[str, bytes], **changes: Any) -> Experiment:
    """Return the experiment whose status agrees with the files."""
    result = json.loads(files["result.json"])
    (hypothesis,) = result["hypotheses"]
    status = {
        "phase": "Succeeded",
        "plan": {"hash": plan_hash(PLAN)},
        "blocks": BLOCKS,
        "controls": [{"name": one["name"], "passed": one["passed"]} for one in result["controls"]],
        "verdicts": [{"prediction": hypothesis["prediction"], "verdict": hypothesis["verdict"]}],
        "artefact": {"store": "s3", "jobUid": "u", "digest": digest(result)},
        **changes,
    }
    return Experiment.model_validate({"metadata": {"name": "toy"}, "spec": PLAN["spec"], "status": status})


def test_the_order_of_the_figures_in_a_block_is_no_difference(files: Mapping[str, bytes]) -> None:
    turned = [{**one, "figures": one["figures"][::-1]} for one in BLOCKS]
    assert verify.findings(files, finished(files, blocks=turned)).differences == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "toy: plan, data, result and report agree with their re-computation, as does the status"),
        ({"plan": {"hash": "sha256:00"}}, "plan.json: digest in the status: stored 'sha256:00'"),
        (
            {"blocks": [{**BLOCKS[0], "seed": 1}, *BLOCKS[1:]]},
            f"status.blocks 0 seed: status 1, store {BLOCKS[0]['seed']}",
        ),
        (
            {"blocks": [{**BLOCKS[0], "figures": BLOCKS[0]["figures"][1:]}, *BLOCKS[1:]]},
            f"status.blocks 0 figures {BLOCKS[0]['figures'][0]['arm']} seconds: status nothing",
        ),
        ({"blocks": BLOCKS[1:]}, "status.blocks 0: status nothing"),
        ({"verdicts": []}, 'status.verdicts faster: status nothing, store "Supported"'),
    ],
)
def test_files_in_the_store_are_compared_with_the_status(
    files: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], line: str
) -> None:
    found = Artefact(dict(files), finished(files, **changes))
    monkeypatch.setattr(verify, "fetch", lambda *_: found)
    done = run("toy")
    assert line in done.output and done.exit_code == (1 if changes else 0), done.output
