"""The study from its plan to its report: register, train, tune, run, analyse.

`python -m convoy_workloads.engines.orchestration.study --folder FOLDER` runs it on this machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy_crds.experiment_hash import canonical
from convoy_crds.experiment_schedule import Block, schedule
from convoy_crds.experiment_status import BlockStatus
from convoy_crds.field_paths import with_value
from convoy_workloads.engines.experiment_analysis.file_state import write_files
from convoy_workloads.engines.orchestration.arms import BROKEN, LEARNED, SAME
from convoy_workloads.engines.orchestration.claims import ClaimResult, decide_claims
from convoy_workloads.engines.orchestration.evidence import Finished
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.plan import (
    StudyExperiment,
    experiments,
    simulation_params,
    study_document,
    study_hash,
)
from convoy_workloads.engines.orchestration.report import (
    Condition,
    StudyData,
    document,
    markdown,
    mean_figures,
)
from convoy_workloads.engines.orchestration.systems import System, arm_names, chosen
from convoy_workloads.engines.orchestration.training import Trained, shuffled
from convoy_workloads.engines.orchestration.work import (
    AnalysisTask,
    Figures,
    MapAll,
    RunBatch,
    RunKey,
    TrainingTask,
    TuningTask,
    analyse_experiment,
    mapping,
    simulate,
    train_network,
    tune,
)
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.register import problems, spec_of
from convoy_workloads.simulators.autoscaling.params import Params as AutoscalingParams
from convoy_workloads.simulators.autoscaling.training import trained

BATCH = 24
"""Number of runs in one piece of work."""


class StudyError(Exception):
    """Raised if the runs contradict each other."""


class InvalidStudy(StudyError):
    """Raised before the first run if the operator would refuse one of the plans."""


@dataclass
class Study:
    """The state of the study. `work` fills it."""

    params: Params
    plan: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    """Hash of the plan. It is set before the first run."""
    training: dict[str, Trained] = field(default_factory=dict)
    """Trained network of each system."""
    tuning: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Rows of the tuning of each system."""
    arms: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Final parameters of each arm, by system and arm."""
    runs: dict[tuple[str, RunKey], Figures] = field(default_factory=dict)
    """Figures of each run, by system and run."""
    finished: list[Finished] = field(default_factory=list)
    claims: list[ClaimResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._systems = chosen(self.params)
        self._experiments = experiments(self.params)
        _require_valid(self._experiments)
        self._tunings = [(system, arm) for system in self._systems for arm in system.arms if arm.search]
        self._batches = [batch for system in self._systems for batch in self._keys(system)]

    @property
    def steps(self) -> int:
        """Return the number of pieces of work."""
        return len(self._systems) + len(self._tunings) + len(self._batches) + len(self._experiments)

    def work(self) -> Iterator[str]:
        """Carry out the study. Yield a text after each piece of work."""
        self.plan = study_document(self.params)
        self.hash = study_hash(self.plan)
        with mapping(self.params.workers) as map_all:
            yield from self._train(map_all)
            yield from self._tune(map_all)
            yield from self._run(map_all)
            yield from self._analyse(map_all)

    def _train(self, map_all: MapAll) -> Iterator[str]:
        tasks = [TrainingTask(system, self.params) for system in self._systems]
        for system, found in zip(self._systems, map_all(train_network, tasks), strict=True):
            if found is not None:
                self.training[system.name] = found
            yield f"trained {system.name}"

    def _tune(self, map_all: MapAll) -> Iterator[str]:
        for system in self._systems:
            self.arms[system.name] = {
                arm.name: self._trained(system, simulation_params(system, arm, self.params))
                for arm in system.arms
            }
        tasks = [
            TuningTask(system, arm, self.params, self.arms[system.name][arm.name])
            for system, arm in self._tunings
        ]
        for (system, arm), row in zip(self._tunings, map_all(tune, tasks), strict=True):
            self.tuning.setdefault(system.name, []).append(row)
            body: Any = self.arms[system.name][arm.name]
            for one in row["values"]:
                body = with_value(body, one["path"], json.loads(one["value"]))
            self.arms[system.name][arm.name] = body
            yield f"tuned {system.name} {arm.name}"
        for system in self._systems:
            self._add_controls(system)

    def _trained(self, system: System, body: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters with the trained weights, if the arm has some."""
        if "weights" not in body["policy"]:
            return body
        return {**body, "policy": {**body["policy"], "weights": self.training[system.name].weights}}

    def _add_controls(self, system: System) -> None:
        """Add the learned arm again, and the learned arm with shuffled weights. From here on, the learned
        autoscaler is the table that its training gave.
        """
        arms, seed = self.arms[system.name], self.params.seed
        if system.name == "autoscaling":
            fixed = trained(AutoscalingParams.model_validate(arms[LEARNED]))
            arms[LEARNED] = fixed.to_dict()
        arms[SAME] = arms[LEARNED]
        policy = dict(arms[LEARNED]["policy"])
        if "weights" in policy:
            policy["weights"] = shuffled(policy["weights"], seed)
        else:
            signs = shuffled("".join(policy["actions"]), seed)
            width = len(policy["actions"][0])
            policy["actions"] = [
                "".join(signs[first : first + width]) for first in range(0, len(signs), width)
            ]
        arms[BROKEN] = {**arms[LEARNED], "policy": policy}

    def _keys(self, system: System) -> Iterator[tuple[System, tuple[RunKey, ...]]]:
        """Yield the runs of a system in batches. The unperturbed runs are the same in all experiments."""
        found: dict[RunKey, None] = {}
        for one in self._experiments:
            if one.system is not system:
                continue
            for block in schedule(spec_of(one.plan)):
                for arm in arm_names(system):  # Also the arms beside the experiment.
                    found[_key(one, block, arm)] = None
        keys = sorted(found, key=lambda one: (one.arm, one.kind, one.magnitude, one.seed))
        for first in range(0, len(keys), BATCH):
            yield system, tuple(keys[first : first + BATCH])

    def _run(self, map_all: MapAll) -> Iterator[str]:
        batches = [
            RunBatch(system.name, {key.arm: self.arms[system.name][key.arm] for key in keys}, keys)
            for system, keys in self._batches
        ]
        for batch, rows in zip(batches, map_all(simulate, batches), strict=True):
            self.runs.update({(batch.simulator, key): found for key, found in rows})
            yield f"ran {len(rows)} windows of {batch.simulator}"

    def _analyse(self, map_all: MapAll) -> Iterator[str]:
        tasks = [AnalysisTask(one.plan, self.blocks(one), self._tuning_of(one)) for one in self._experiments]
        for one, result in zip(self._experiments, map_all(analyse_experiment, tasks), strict=True):
            rows = [*self.blocks(one), *self.blocks(one, beside=True)]
            blocks = [BlockStatus.model_validate(row) for row in rows]
            self.finished.append(Finished(one.system, one.kind, result, blocks, Observations(blocks)))
            yield f"analysed {one.name}"
        self.claims = decide_claims(self.finished)

    def _tuning_of(self, experiment: StudyExperiment) -> list[dict[str, Any]]:
        """Return the tuning of the experiment's arms, without those that run beside it."""
        names = {one["name"] for one in experiment.plan["spec"]["arms"]}
        return [one for one in self.tuning.get(experiment.system.name, []) if one["arm"] in names]

    def blocks(self, experiment: StudyExperiment, beside: bool = False) -> list[dict[str, Any]]:
        """Return the blocks of an experiment, in the form of its status. `beside`: with the arms that run
        beside it instead of its own ones.

        Raises StudyError if two arms of a block got different work.
        """
        return [self._block(experiment, block, beside) for block in schedule(spec_of(experiment.plan))]

    def _block(self, experiment: StudyExperiment, block: Block, beside: bool) -> dict[str, Any]:
        system = experiment.system
        runs = {arm: self.runs[system.name, _key(experiment, block, arm)] for arm in arm_names(system)}
        if len({one.figures["offered"] for one in runs.values()}) > 1:
            raise StudyError(f"{experiment.name}, block {block.id}: the arms got different work")
        arms = [arm for arm in runs if arm not in block.arms] if beside else block.arms
        found = {arm: runs[arm] for arm in arms}
        body: dict[str, Any] = {
            "id": block.id,
            "repetition": block.repetition,
            "seed": block.seed,
            "arms": list(arms),
            "figures": [
                {"arm": arm, "outcome": name, "value": one.figures[name]}
                for arm, one in found.items()
                for name in system.outcomes
            ],
        }
        if block.cell.perturbation:
            body |= {"perturbation": block.cell.perturbation, "magnitude": block.cell.magnitude}
            body["achieved"] = [
                {"arm": arm, "magnitude": one.achieved}
                for arm, one in found.items()
                if one.achieved is not None
            ]
        return body

    @property
    def data(self) -> StudyData:
        """Return what the report needs."""
        return StudyData(
            hash=self.hash,
            plan=self.plan,
            training=self.training,
            tuning=self.tuning,
            finished=self.finished,
            claims=self.claims,
            runs=len(self.runs),
            means={
                (system, arm, condition): mean_figures(one.figures for one in found)
                for (system, arm, condition), found in self._by_condition().items()
            },
        )

    def _by_condition(self) -> dict[tuple[str, str, Condition], list[Figures]]:
        found: dict[tuple[str, str, Condition], list[Figures]] = {}
        for (system, key), figures in self.runs.items():
            group = (system, key.arm, Condition(key.kind, key.magnitude))
            found.setdefault(group, []).append(figures)
        return dict(sorted(found.items(), key=lambda one: (one[0][0], one[0][2].kind, one[0][2].magnitude)))

    def files(self) -> dict[str, bytes]:
        """Return the files of the finished study."""
        found = {
            "study-plan.json": canonical(self.plan),
            "study.json": json.dumps(document(self.data), indent=1, sort_keys=True).encode(),
            "study.md": markdown(self.data).encode(),
        }
        for one, item in zip(self._experiments, self.finished, strict=True):
            data = {"blocks": self.blocks(one), "tuning": self._tuning_of(one)}
            found[f"{one.name}.plan.json"] = canonical(one.plan)
            found[f"{one.name}.data.json"] = canonical(data)
            found[f"{one.name}.result.json"] = canonical(item.result.document())
        return found


def _key(experiment: StudyExperiment, block: Block, arm: str) -> RunKey:
    if not block.cell.perturbation:
        return RunKey(arm, block.seed)
    return RunKey(arm, block.seed, experiment.kind, block.cell.magnitude or 0.0)


def _require_valid(planned: Sequence[StudyExperiment]) -> None:
    """Raise InvalidStudy if the operator would not register one of the plans, such as a plan with too few
    blocks for any verdict.
    """
    found = [f"{one.name}: {text}" for one in planned for text in problems(spec_of(one.plan))]
    if found:
        raise InvalidStudy(f"nothing has run, because these plans are invalid: {'; '.join(found)}")


def main() -> None:
    """Run the study on this machine, and write its files to a folder."""
    parser = argparse.ArgumentParser(prog="orchestration.study", description="Run the study.")
    parser.add_argument("--folder", required=True, help="Folder for the files.")
    parser.add_argument("--params", default="{}", help="Parameters of the engine as a JSON object.")
    options = parser.parse_args()
    given: Mapping[str, Any] = json.loads(options.params)
    study = Study(Params.model_validate(given))
    for number, text in enumerate(study.work(), 1):
        if number == 1:
            print(f"plan {study.hash}", flush=True)
        print(f"{number}/{study.steps} {text}", flush=True)
    write_files(Path(options.folder), study.files())
    print(markdown(study.data))


if __name__ == "__main__":
    main()
