"""The files of an Experiment in its store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import ExperimentData, unpack
from convoy_crds.experiment_hash import canonical
from convoy_workloads.experiments.analysis import analyse
from convoy_workloads.experiments.report_html import html
from convoy_workloads.experiments.report_markdown import markdown
from convoy_workloads.experiments.result import Result
from convoy_workloads.experiments.statement import (
    DATA_FILE,
    PLAN_FILE,
    RESULT_FILE,
    plan_statement,
    result_statement,
)

PLAN_STATEMENT, RESULT_STATEMENT = "plan.intoto.json", "result.intoto.json"
HTML_FILE, MARKDOWN_FILE, RERUN_FILE = "report.html", "report.md", "rerun.yaml"
Rows = Sequence[Mapping[str, Any]]


def plan_files(plan: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files that register a plan."""
    return {PLAN_FILE: canonical(plan), PLAN_STATEMENT: plan_statement(plan)}


def analysed(plan: Mapping[str, Any], data: ExperimentData) -> tuple[Result, dict[str, bytes]]:
    """Return the result of the analysis, and all files of the finished experiment."""
    blocks = unpack(ExperimentSpec.model_validate(plan["spec"]), data.blocks)
    deviations = [one.to_dict() for one in data.deviations]
    return result_files(plan, [one.to_dict() for one in blocks], data.tuning, deviations)


def result_files(
    plan: Mapping[str, Any], blocks: Rows, tuning: Rows, deviations: Rows = (), drawn: bool = True
) -> tuple[Result, dict[str, bytes]]:
    """Return the result of the analysis, and all files of the finished experiment. `drawn`: False to leave
    the plots of the page empty.
    """
    result = analyse(plan, blocks, tuning, deviations)
    data = {"blocks": list(blocks), "tuning": list(tuning), "deviations": list(deviations)}
    return result, {
        **plan_files(plan),
        DATA_FILE: canonical(data),
        RESULT_FILE: canonical(result.document()),
        RESULT_STATEMENT: result_statement(plan, data, result),
        MARKDOWN_FILE: markdown(plan, result).encode(),
        HTML_FILE: html(plan, result, drawn).encode(),
        RERUN_FILE: rerun(plan).encode(),
    }


def rerun(plan: Mapping[str, Any]) -> str:
    """Return a manifest that runs the plan again."""
    registered = json.loads(canonical(plan))
    images = "".join(f"#   {one['name']}: {one['image']}\n" for one in registered["engines"])
    manifest = {
        "apiVersion": registered["apiVersion"],
        "kind": registered["kind"],
        "metadata": {"name": registered["name"]},
        "spec": registered["spec"],
    }
    return (
        f"# Runs the experiment {plan['name']} again: kubectl create -f rerun.yaml\n"
        f"# Another name or other images of these Engines give another plan hash.\n{images}"
        f"{yaml.safe_dump(manifest, sort_keys=True, allow_unicode=True)}"
    )
