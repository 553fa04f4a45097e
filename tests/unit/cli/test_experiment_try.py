"""Tests of `convoy experiment try`: it gives the numbers of a cluster, also if the cluster's operator crashes
and its jobs disappear.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.experiment import local_run as local
from convoy.cli.experiment.local_run import LocalRun, Stuck, local_run, run_to_end
from convoy_controllers.children import Create
from convoy_controllers.simulate.kernel import EPOCH
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_arm import Arm
from convoy_crds.experiment_data import ExperimentData, compressed, decompressed
from convoy_crds.experiment_hash import plan_document, plan_hash
from convoy_crds.experiment_schedule import Block, schedule
from convoy_crds.experiment_status import ExperimentPhase
from convoy_crds.terms import ENGINE_ANALYSIS
from convoy_workloads.engines.catalogue import catalogue
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.plan_check import problems
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.tuning import tuned

EXAMPLES = Path(__file__).parents[3] / "examples" / "experiments"
SHIFT = {"name": "shift", "kind": "WorkloadShift", "magnitudes": [2]}
VERDICTS = {"digest": "sha256:0", "valid": True, "controls": [["equal", True, ""]], "verdicts": []}


def arm(name: str, role: str, policy: dict[str, Any], **more: Any) -> dict[str, Any]:
    simulation = {"simulator": "autoscaling", "params": {"seconds": 90, "policy": policy}}
    return {"name": name, "type": "Simulation", "role": role, "simulation": simulation, **more}


def manifest(**changes: Any) -> dict[str, Any]:
    search = [{"path": "policy.target", "min": 30, "max": 90}]
    tuning = {"trials": 2, "search": search}
    late = {"outcome": "late", "candidate": "forecast", "comparator": "hpa", "direction": "Better"}
    spec = {
        "store": "s3",
        "seed": 9,
        "blocks": 2,
        "parallelism": 3,
        "maxAttempts": 5,
        "arms": [
            arm("forecast", "Candidate", {"name": "forecast"}, tuning=tuning),
            arm("hpa", "Comparator", {"name": "hpa"}, tuning=tuning),
            {"name": "again", "type": "Simulation", "role": "NegativeControl", "controlOf": "hpa"},
        ],
        "outcomes": [
            {"name": "late", "source": {"metric": "latePercent"}, "better": "Lower"},
            {"name": "hours", "source": {"metric": "podHours"}, "better": "Lower"},
        ],
        "perturbations": [SHIFT],
        "predictions": [{"name": "p", **late, "perturbation": "shift"}],
        "tuning": {"outcome": "late", "blocks": 1},
        **changes,
    }
    head = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": "small"}}
    return {**head, "spec": spec}


def analysis(job: str, params: Any) -> Any:
    """Stand for the program of the analysis, whose libraries load slowly."""
    if params["action"] == "register":
        return {"planHash": plan_hash(params["plan"])}, {"plan.json": b"{}"}
    blocks = [one.to_dict() for one in decompressed(params["data"]).blocks]
    return VERDICTS, {"report.html": b"", "result.json": json.dumps(blocks).encode()}


@pytest.fixture(autouse=True)
def _fast_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PROGRAMS", {**local.PROGRAMS, ENGINE_ANALYSIS: analysis})


def test_the_report_of_one_machine_says_that_the_plan_is_not_registered() -> None:
    made = Experiment.model_validate(manifest(blocks=1))
    registered = plan_document("small", made.to_dict()["spec"], [])
    data = compressed(ExperimentData())
    _, files = local.analyse("result", {"action": "analyse", "plan": registered, "data": data})
    report = files["report.md"].decode()
    assert f"- Plan: `{plan_hash(registered)}`, not registered." in report and "NotRegistered: " in report
    assert [one["reason"] for one in json.loads(files["data.json"])["deviations"]] == ["NotRegistered"]
    assert "NotRegistered" in files["result.intoto.json"].decode()


def figures(found: LocalRun) -> dict[int, Any]:
    """Return the figures of all blocks, without the times at which they ran."""
    return {
        block.id: (block.seed, block.arms, sorted((one.arm, one.outcome, one.value) for one in block.figures))
        for block in found.status.blocks
    }


def finished(body: dict[str, Any]) -> LocalRun:
    made = local_run(Experiment.model_validate(body), catalogue())
    run_to_end(made, lambda _: None)
    return made


class Crash(Exception):
    """Raised when the operator crashes."""


class UnreliableRun(LocalRun):
    """An experiment in a cluster whose operator crashes and whose jobs disappear."""

    chance = random.Random(4)

    def run_job(self, child: Create) -> None:
        if self.chance.random() < 0.2:
            raise Crash  # before the job is created
        super().run_job(child)
        if self.chance.random() < 0.2:
            raise Crash  # after it, before the next one


def crash_often(body: dict[str, Any]) -> tuple[LocalRun, int, int]:
    """Run an experiment with crashes. Return it, and the numbers of crashes and of deleted jobs."""
    fresh = local_run(Experiment.model_validate(body), catalogue())
    made = UnreliableRun(fresh.experiment, fresh.spec, fresh.engines)
    crashes = deleted = 0
    for _ in range(500):
        if made.status.phase in {ExperimentPhase.SUCCEEDED, ExperimentPhase.FAILED}:
            return made, crashes, deleted
        try:
            made.step(EPOCH)
        except Crash:
            crashes += 1
        active = [
            one for one in made.status.runs if not one.ended and one.attempt < 3 and one.name in made.jobs
        ]
        if active and made.chance.random() < 0.4:
            del made.jobs[active[0].name]
            deleted += 1
    raise AssertionError(f"the experiment does not end: {made.status.message}")


def test_crashes_and_deleted_jobs_change_no_number() -> None:
    undisturbed = finished(manifest())
    disturbed, crashes, deleted = crash_often(manifest())
    assert undisturbed.status.phase is disturbed.status.phase is ExperimentPhase.SUCCEEDED
    assert crashes > 3 and deleted
    assert len(figures(undisturbed)) == 4
    assert figures(disturbed) == figures(undisturbed)
    assert [one.values for one in disturbed.status.tuning] == [
        one.values for one in undisturbed.status.tuning
    ]


def expected(experiment: Experiment, chosen: dict[str, dict[str, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield what the simulators give for each block, without the operator."""
    arms: dict[str, Arm] = {one.name: one for one in experiment.spec.arms}
    for block in schedule(experiment.spec):
        found = []
        for name in block.arms:
            source = arms[arms[name].control_of or name]
            assert source.simulation is not None
            params = tuned(source.simulation.params, chosen[source.name])
            outcome = run("autoscaling", params, block.seed, _perturbation(block))
            found += [
                (name, "hours", outcome.figures["podHours"]),
                (name, "late", outcome.figures["latePercent"]),
            ]
        yield block.id, (block.seed, list(block.arms), sorted(found))


def _perturbation(block: Block) -> Perturbation | None:
    if block.cell.magnitude is None:
        return None
    return Perturbation.model_validate({"kind": "WorkloadShift", "magnitude": block.cell.magnitude})


def test_the_figures_are_those_of_the_simulators_with_the_tuned_values() -> None:
    found = finished(manifest())
    chosen = {
        one.arm: {value.path: json.loads(value.value) for value in one.values} for one in found.status.tuning
    }
    assert set(chosen) == {"forecast", "hpa"}
    assert figures(found) == dict(expected(found.experiment, chosen))
    shifted = [one for one in found.status.blocks if one.perturbation]
    assert {one.magnitude for block in shifted for one in block.achieved} != set()


def test_an_invalid_run_is_a_failed_block_and_too_many_end_the_experiment() -> None:
    wrong = arm("hpa", "Comparator", {"name": "hpa", "target": -1})
    body = manifest(maxFailedBlocks=1)
    body["spec"]["arms"] = [arm("forecast", "Candidate", {"name": "forecast"}), wrong]
    del body["spec"]["tuning"]
    found = finished(body)
    assert found.status.phase is ExperimentPhase.FAILED
    failures = [one for block in found.status.blocks for one in block.failures if one.arm == "hpa"]
    assert failures and "params.policy.hpa.target" in failures[0].message


def test_an_experiment_that_cannot_start_is_stuck_with_the_reason_of_its_status() -> None:
    made = local_run(Experiment.model_validate(manifest()), {})
    with pytest.raises(Stuck, match="there is no Engine 'experiment-analysis'"):
        run_to_end(made, lambda _: None)


# The command


def invoke(folder: Path, body: dict[str, Any]) -> Any:
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(body))
    return CliRunner().invoke(app, ["experiment", "try", str(file), "--output", str(folder / "out")])


def test_the_command_writes_the_files_and_prints_the_tables(tmp_path: Path) -> None:
    done = invoke(tmp_path, manifest())
    assert done.exit_code == 0, done.output
    assert "shift factor 2: 2 of 2 blocks" in done.output
    assert "policy.target=" in done.output
    assert "The plan was not registered: " in done.output
    assert done.output.endswith(f"The report is {tmp_path / 'out' / 'report.html'}\n")
    files = {one.name for one in (tmp_path / "out").iterdir()}
    assert {"plan.json", "result.json"} < files
    assert sum(name.endswith("-1.tuning.json") for name in files) == 2
    again = invoke(tmp_path, manifest())
    assert again.exit_code == 1 and "is not empty" in again.output


JOB = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 1}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks": 1}, "one block has no spread"),
        ({"perturbations": [{**SHIFT, "kind": "KillRank"}]}, "cannot inject KillRank"),
        (
            {"arms": [{"name": "a", "type": "TrainingJob", "role": "Candidate", "template": {"spec": JOB}},
                      arm("hpa", "Comparator", {"name": "hpa"})],
             "perturbations": [],
             "predictions": [{"name": "p", "outcome": "late", "candidate": "a", "comparator": "hpa",
                              "direction": "Better"}]},
            "spec.arms[0].type is TrainingJob: only arms of type Simulation run without",
        ),
    ],
)  # fmt: skip
def test_the_command_refuses_what_it_cannot_run(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    done = invoke(tmp_path, manifest(**change))
    assert done.exit_code == 1
    assert words in done.output
    assert not (tmp_path / "out").exists()


def test_a_folder_and_an_experiment_without_a_name_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in CliRunner().invoke(app, ["experiment", "try", str(tmp_path)]).output
    unnamed = {**manifest(), "metadata": {"generateName": "small-"}}
    done = invoke(tmp_path, unnamed)
    assert done.exit_code == 1 and "metadata.name: is required here" in done.output


def test_validate_finds_the_errors_of_simulations(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(manifest(perturbations=[{**SHIFT, "kind": "NodeLoss"}])))
    done = CliRunner().invoke(app, ["validate", str(file)])
    assert done.exit_code == 1 and "cannot inject NodeLoss" in done.output


def test_examples_of_simulations_can_run_here() -> None:
    for name in ("autoscaling-simulated", "in-place-simulated", "intervals-small", "spot-fallback", "sweep"):
        body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        made = local_run(Experiment.model_validate(body), catalogue())
        assert problems(made.experiment.spec) == []
        made.step(EPOCH)
        assert made.status.phase is ExperimentPhase.REGISTERING, made.status.message


def test_no_example_predicts_the_figure_that_is_only_for_the_tuning() -> None:
    for path in EXAMPLES.glob("*.yaml"):
        spec = Experiment.model_validate(yaml.safe_load(path.read_text())).spec
        assert "weightedCost" not in {one.outcome for one in spec.predictions or ()}, path.name
