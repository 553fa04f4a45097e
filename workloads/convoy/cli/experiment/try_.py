"""The command try, which runs an Experiment of simulations on this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.files import require_free, write_atomically
from convoy.cli.cluster import Failure
from convoy.cli.experiment.local_run import LocalRun, Stuck, local_run, run_to_end
from convoy.cli.experiment.report import HTML_FILE
from convoy.cli.experiment.status import print_results
from convoy.cli.manifest import Manifest, engines, problems
from convoy.cli.sources import File, sources
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_status import ExperimentPhase

PACKAGES = ("matplotlib", "optuna", "scipy", "statsmodels")
"""Packages that only the tuning and the analysis need."""


def try_experiment(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder to create. Default: NAME-report."),
    ] = None,
) -> None:
    """Run an experiment on this machine, without a cluster. All its arms must be simulations.

    The blocks have the same seeds and the same numbers as in a cluster. The folder has the same files as that
    of `convoy experiment report`, and the logs of the tuning. The exit status is 1 if the experiment fails or
    is invalid.
    """
    experiment, manifests = _read(file)
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise Failure(f"{', '.join(missing)} missing: pip install '.[cli,tools]' in Convoy's source")
    to = output or Path(f"{experiment.metadata.name}-report")
    require_free(to, folder=True)
    run = local_run(experiment, engines(manifests))
    try:
        run_to_end(run, _Progress().show)
    except Stuck as stuck:
        raise Failure(f"{file}: {stuck}") from stuck
    if run.files:
        with write_atomically(to, folder=True) as partial:
            partial.mkdir()
            for name, content in run.files.items():
                (partial / name).write_bytes(content)
    if run.status.blocks:
        print_results(run.experiment)
        typer.echo("")
    good = run.status.phase is ExperimentPhase.SUCCEEDED
    typer.echo(f"{run.status.phase}: {(run.status.summary or 'done') if good else run.status.message}")
    typer.echo(
        "The plan was not registered: only a cluster lets others see that it stood before the first run"
    )
    if run.files:
        typer.echo(f"{', '.join(sorted(run.files))} in {to}")
        if HTML_FILE in run.files:
            typer.echo(f"The report is {to / HTML_FILE}")
    raise typer.Exit(0 if good else 1)


def _read(file: Path) -> tuple[Experiment, list[Manifest]]:
    """Return the only Experiment of a file, and all objects of the file. Raises Failure for any error."""
    if file.is_dir():
        raise Failure(f"{file} is a folder: give the path of a file with one Experiment")
    (source,) = sources(file)
    if source.error:
        raise Failure(f"{file}: {source.error}")
    manifests = list(source.manifests)
    wrong = [problem for one in manifests for problem in problems(one, manifests)]
    found = [one.model for one in manifests if isinstance(one.model, Experiment)]
    if not wrong and len(found) != 1:
        wrong = [f"has {len(found)} Experiments; give a file with one"]
    for experiment in found if not wrong else ():
        if not experiment.metadata.name:
            wrong.append("metadata.name: is required here, because the plan contains it")
        others = [
            f"spec.arms[{number}].type is {arm.type}"
            for number, arm in enumerate(experiment.spec.arms)
            if arm.type is not ArmType.SIMULATION
        ]
        if others:
            wrong.append(f"{', '.join(others)}: only arms of type Simulation run without a cluster")
    if wrong:
        raise Failure(f"{file}: " + "; ".join(wrong))
    return found[0], manifests


class _Progress:
    """Prints a line on stderr for each change of the phase, and for each tenth of the blocks."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, run: LocalRun) -> None:
        """Print the progress if it is worth a line."""
        status = run.status
        line = f"{status.phase}: {status.progress} blocks" if status.percent else str(status.phase)
        mark = f"{status.phase} {status.percent // 10}"
        if status.phase is not None and mark != self._shown:
            self._shown = mark
            typer.echo(line, err=True)
