"""Tests of the files of a finished Experiment, and of their re-computation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from tests.unit.workloads.experiments.plans import PREDICTION, blocks, outcome, plan, shifted

from convoy_crds.experiment import Experiment
from convoy_crds.experiment_hash import digest, plan_hash
from convoy_workloads.experiments.artefact import plan_files, result_files
from convoy_workloads.experiments.report_html import html
from convoy_workloads.experiments.verify import verify

LAG = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [10, 60.5]}]
PLAN = plan(
    perturbations=LAG,
    predictions=[PREDICTION, {**PREDICTION, "name": "under-lag", "perturbation": "lag", "margin": 1.0}],
    outcomes=[outcome("seconds", "Lower"), outcome("price", "Higher")],
)
TUNING = [{"arm": "ours", "trials": 3, "best": 1.5}]


@pytest.fixture(scope="module")
def files() -> Mapping[str, bytes]:
    return result_files(PLAN, blocks(PLAN, shifted(3)), TUNING)[1]


def changed(files: Mapping[str, bytes], name: str, change: Any) -> dict[str, bytes]:
    document = json.loads(files[name])
    change(document)
    return {**files, name: json.dumps(document).encode()}


def test_equal_data_give_equal_bytes(files: Mapping[str, bytes]) -> None:
    assert result_files(PLAN, blocks(PLAN, shifted(3)), TUNING)[1] == files
    assert verify(files, digest(json.loads(files["result.json"])), plan_hash(PLAN)) == []


def test_times_of_blocks_are_data_but_no_result(files: Mapping[str, bytes]) -> None:
    rows = [{**row, "startTime": "2026-11-26T20:00:00Z"} for row in blocks(PLAN, shifted(3))]
    later = result_files(PLAN, rows, TUNING)[1]
    assert later["result.json"] == files["result.json"]
    assert later["data.json"] != files["data.json"]


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        (
            "data.json",
            lambda one: one["blocks"][4]["figures"][0].update(value=99.0),
            ["data.json: digest in result.intoto.json", "result.json: hypotheses.", "report.md"],
        ),
        (
            "result.json",
            lambda one: one["hypotheses"][0].update(effect=99.0),
            [
                "result.json: digest in the status",
                "result.json: digest in result.intoto.json",
                "result.json: hypotheses.0.effect: stored 99.0, computed",
            ],
        ),
        ("plan.json", lambda one: one["spec"].update(blocks=11), ["plan.json: digest in plan.intoto.json"]),
        (
            "result.intoto.json",
            lambda one: one["predicate"].update(result="FAILED"),
            ["result.intoto.json: predicate.result: stored 'FAILED', computed 'PASSED'"],
        ),
    ],
)
def test_changed_files_are_named(
    files: Mapping[str, bytes], name: str, change: Any, named: list[str]
) -> None:
    expected = digest(json.loads(files["result.json"]))
    found = [str(one) for one in verify(changed(files, name, change), expected, plan_hash(PLAN))]
    for start in named:
        assert any(one.startswith(start) for one in found), found


def test_other_numbers_within_the_rounding_of_processors_are_equal(files: Mapping[str, bytes]) -> None:
    effect = json.loads(files["result.json"])["hypotheses"][0]["effect"]
    other = changed(
        files, "result.json", lambda one: one["hypotheses"][0].update(effect=effect * (1 + 1e-10))
    )
    assert [one.path for one in verify(other)] == ["digest in result.intoto.json"]


def test_missing_and_changed_reports_are_named(files: Mapping[str, bytes]) -> None:
    kept = {**files, "report.md": files["report.md"].replace(b"Supported", b"Contradicted")}
    del kept["report.html"]
    found = {one.file: one for one in verify(kept)}
    assert set(found) == {"report.md", "report.html"}
    assert found["report.html"].stored == "no such file"
    assert "3 Contradicted" in found["report.md"].stored and "3 Supported" in found["report.md"].computed


def test_a_sentence_in_other_words_is_told_apart_from_a_figure(files: Mapping[str, bytes]) -> None:
    reason = json.loads(files["result.json"])["hypotheses"][0]["reason"]
    reworded = changed(
        files, "result.json", lambda one: one["hypotheses"][0].update(reason=f"Well, {reason}")
    )
    found = {one.path: one.words_only for one in verify(reworded)}
    assert found == {"digest in result.intoto.json": False, "hypotheses.0.reason": True}
    other = changed(files, "result.json", lambda one: one["hypotheses"][0].update(reason=f"{reason} 7"))
    assert {one.path: one.words_only for one in verify(other)}["hypotheses.0.reason"] is False


def test_a_malformed_statement_is_named(files: Mapping[str, bytes]) -> None:
    for subject in ({"name": "data.json"}, {"digest": {"sha256": "00"}}, "data.json"):
        broken = changed(files, "result.intoto.json", lambda one, new=subject: one["subject"].insert(0, new))
        assert "result.intoto.json: subject.0: stored" in " ".join(str(one) for one in verify(broken))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"data.json": b"{"}, "data.json is not JSON"),
        ({"data.json": b"{}"}, "data.json: blocks is missing or has another type than list"),
        ({"plan.json": None}, "plan.json is missing"),
        ({"plan.json": b"[]"}, "plan.json: name is missing"),
    ],
)
def test_nothing_is_computed_without_plan_and_data(
    files: Mapping[str, bytes], broken: Mapping[str, bytes | None], message: str
) -> None:
    kept = {name: one for name, one in {**files, **broken}.items() if one is not None}
    with pytest.raises(ValueError, match=message):
        verify(kept)


def test_the_statements_share_the_digest_of_the_plan(files: Mapping[str, bytes]) -> None:
    before, after = (json.loads(files[name]) for name in ("plan.intoto.json", "result.intoto.json"))
    assert before["subject"] == after["predicate"]["configuration"]
    assert before["subject"][0]["digest"]["sha256"] == hashlib.sha256(files["plan.json"]).hexdigest()
    subjects = {one["name"]: one["digest"]["sha256"] for one in after["subject"]}
    assert subjects == {
        name: hashlib.sha256(files[name]).hexdigest() for name in ("data.json", "result.json")
    }
    assert after["predicate"]["passedTests"] == ["faster", "under-lag at lag 10", "under-lag at lag 60.5"]
    assert plan_files(PLAN).items() <= files.items()


def test_the_manifest_runs_the_same_plan_again(files: Mapping[str, bytes]) -> None:
    manifest = yaml.safe_load(files["rerun.yaml"])
    Experiment.model_validate(manifest)
    assert plan_hash({**PLAN, "spec": manifest["spec"]}) == plan_hash(PLAN)


def test_the_page_is_one_file_that_loads_nothing(files: Mapping[str, bytes]) -> None:
    page = files["report.html"].decode()
    assert page.count("<svg") == 3
    assert not re.search(
        r"<script|<link|<img|@import|url\((?!#)|src=|(?<!xmlns:xlink=\")(?<!xmlns=\")https?://", page
    )
    for name in ("Verdicts", "Controls", "Values", "Effect sizes", "Failed runs", plan_hash(PLAN)):
        assert name in page


def test_texts_of_users_cannot_become_markup() -> None:
    document = plan(outcomes=[outcome("seconds", "Lower", unit="<b>|x")])
    rows = blocks(
        document, lambda block, label, name: None if block.id == 0 else shifted(1)(block, label, name)
    )
    rows[0]["failures"][0]["message"] = "<script>alert(1)</script>|\n# x"
    result, files = result_files(document, rows, [])
    assert "<script>" not in html(document, result) and "<b>" not in html(document, result)
    failed = files["report.md"].decode().split("## Failed runs")[1]
    assert "&#124; # x |" in failed and "\n# x" not in failed
