"""The command simulate. It replays a scenario of faults in virtual time, with the operator's own code for
decisions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from convoy.cli import table
from convoy.cli.cluster import Failure
from convoy.cli.field_errors import field_path
from convoy.cli.manifest import InvalidYaml, documents, parse
from convoy.cli.output import Output
from convoy.cli.rules import broken_rules
from convoy.cli.text_file import read_text
from convoy_controllers.simulate.job_kind import Report, Table
from convoy_controllers.simulate.replay import History, replay
from convoy_controllers.simulate.scenario import Scenario
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_crds.kinds import by_name
from convoy_crds.meta import API_VERSION


def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with a scenario; - for stdin.")],
    seed: Annotated[int | None, typer.Option(help="Random seed. Default: the seed of the scenario.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Simulate a scenario of faults in virtual time.

    The command needs no cluster. The operator's own code makes the decisions. The cluster, agents and ranks
    are simulated.
    """
    scenario = load(file)
    if seed is not None:
        scenario.seed = seed
    try:
        history = replay(scenario)
    except InvariantViolation as fault:
        raise Failure(
            f"{file}: the simulated operator violated an invariant; report this with the scenario: {fault}"
        ) from fault
    if output is Output.JSON:
        typer.echo(json.dumps(as_json(history), indent=2))
    else:
        _print(history)


def load(file: Path) -> Scenario:
    """Return the scenario in a file. Raises Failure with the file and field if the scenario is invalid."""
    text = read_text(file)
    try:
        bodies = list(documents(text))
    except InvalidYaml as error:
        raise Failure(f"{file}: {error}") from error
    if len(bodies) != 1:
        raise Failure(f"{file}: a scenario must be one YAML document with nodes and jobs")
    if wrong := [problem for number, body in enumerate(_jobs(bodies[0])) for problem in _check(number, body)]:
        raise Failure(f"{file}: " + "; ".join(wrong))
    try:
        scenario = Scenario.model_validate(bodies[0])
    except ValidationError as error:
        found = [
            f"{field_path(one['loc']) or 'scenario'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        ]
        raise Failure(f"{file}: " + "; ".join(found)) from error
    kinds = by_name()
    for number, job in scenario.edited_jobs():
        if wrong := broken_rules(kinds[job.kind], job.to_dict()):
            raise Failure(f"{file}: events[{number}]: " + "; ".join(wrong))
    return scenario


def _jobs(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the job manifests in `body`, the content of a scenario file. The content may be malformed."""
    runs = body.get("jobs")
    found = [run.get("job") for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    return [job for job in found if isinstance(job, dict)]


def _check(number: int, job: dict[str, Any]) -> list[str]:
    """Return the errors that the API server would find in the job number `number` of the scenario. The
    job's Engine need not exist.
    """
    manifest = parse({"apiVersion": API_VERSION, "kind": "TrainingJob", **job})
    rules = broken_rules(manifest.kind, manifest.model.to_dict()) if manifest.kind and manifest.model else []
    return [f"jobs[{number}].job: {problem}" for problem in (*manifest.errors, *rules)]


def as_json(history: History) -> dict[str, Any]:
    """Return the whole replay as JSON values."""
    return {
        "seconds": round(history.seconds, 3),
        "lines": [{"at": entry.at, "what": entry.what} for entry in history.entries],
        "droppedLines": history.dropped,
        "jobs": [{"name": result.job.metadata.name, **result.report().values} for result in history.results],
    }


def _print(history: History) -> None:
    for entry in history.entries:
        typer.echo(f"{entry.at:10.3f}  {entry.what}")
    if history.dropped:
        typer.echo(f"... and {history.dropped} more lines")
    for result in history.results:
        _print_report(result.job.metadata.name, result.report())


def _print_report(name: str, report: Report) -> None:
    typer.echo("")
    typer.echo(f"{name}: {report.summary}")
    for one in report.tables:
        _print_table(one)


def _print_table(one: Table) -> None:
    shown = table.new_table()
    shown.add_column(one.head[0])
    for head in one.head[1:]:
        shown.add_column(head, justify="right")
    for row in one.rows:
        shown.add_row(*row)
    table.print_table(shown)
