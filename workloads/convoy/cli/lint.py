"""The command lint, which checks manifests against the rules of advice."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from convoy.cli.lint_subjects import Judged, judged
from convoy.cli.output import Output
from convoy.cli.sources import Files, all_sources
from convoy.cli.table import new_table, print_table
from convoy_controllers.advice.registry import RULES
from convoy_crds.advice import AdviceFinding, Severity


class FailOn(StrEnum):
    """Severity from which findings fail the command."""

    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


_IDS = tuple(rule.id for rule in RULES)


def _rule_id(text: str) -> str:
    """Return the id of a rule. Raises BadParameter if there is no such rule."""
    if text not in _IDS:
        raise typer.BadParameter(f"there is no rule {text!r}; the rules are {_IDS[0]} to {_IDS[-1]}")
    return text


Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULE", parser=_rule_id, help="Rule to leave out, such as T03."),
]
Fail = Annotated[
    FailOn, typer.Option("--fail-on", help="Lowest severity for which the command ends with exit code 1.")
]
Format = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]


def lint(
    files: Files, ignore: Ignore = None, fail_on: Fail = FailOn.WARNING, output: Format = Output.TEXT
) -> None:
    """Advise on manifests.

    The command finds what makes jobs slow, costly or impossible to repeat, and says what to do. It needs no
    cluster. Give it several files at once: some rules compare jobs, or read the zones of PersistentVolumes.
    Output of `kubectl get -o yaml` is judged by the facts of the run in its status too.

    The exit code is 1 if there are findings of the severity of --fail-on, or if a file or an object is
    invalid.
    """
    found, errors = judged(all_sources(*files), ignore or ())
    if output is Output.JSON:
        body = {"findings": _as_json(found), "objects": len(found), "errors": errors}
        typer.echo(json.dumps(body, indent=2))
    else:
        _print(found)
        for error in errors:
            typer.echo(error, err=True)
    raise typer.Exit(1 if errors or _fails(found, fail_on) else 0)


def _fails(found: list[Judged], fail_on: FailOn) -> bool:
    fatal = {FailOn.WARNING: (Severity.WARNING,), FailOn.INFO: tuple(Severity), FailOn.NEVER: ()}[fail_on]
    return any(one.severity in fatal for subject in found for one in subject.findings)


def _as_json(found: list[Judged]) -> list[dict[str, Any]]:
    return [
        {"file": subject.source, "object": subject.where, **one.to_dict()}
        for subject in found
        for one in subject.findings
    ]


def _print(found: list[Judged]) -> None:
    """Print a table for each object with findings, and a last line with their numbers."""
    for subject in found:
        if subject.findings:
            typer.echo(f"{subject.source}: {subject.where}")
            print_table(_table(subject.findings))
            typer.echo("")
    severities = [one.severity for subject in found for one in subject.findings]
    warnings = severities.count(Severity.WARNING)
    objects = f"{len(found)} object{'s' if len(found) != 1 else ''}"
    if not severities:
        typer.echo(f"{objects}: no findings")
        return
    typer.echo(f"{objects}: {warnings} warnings, {len(severities) - warnings} hints")


def _table(findings: list[AdviceFinding]) -> Table:
    table = new_table()
    for title in ("RULE", "SEVERITY", "FINDING"):
        table.add_column(title)
    for one in findings:
        text = f"{one.path}\n{one.message}\nRemedy: {one.remedy}"
        table.add_row(one.rule, one.severity.value, text)
    return table
