"""The command report, which fetches the report and the data of an experiment."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.files import require_free, write_atomically
from convoy.cli.checkpoint.store_access import OPERATOR, Endpoint, Folder, Operator
from convoy.cli.cluster import Context, Namespace
from convoy.cli.experiment.artefact import StoreOptions, fetch
from convoy.cli.experiment.stop import ExperimentName

HTML_FILE = "report.html"
StoreName = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="CheckpointStore of a deleted experiment. Requires --uid."),
]
Uid = Annotated[
    str | None,
    typer.Option("--uid", metavar="UID", help="metadata.uid of the analysis job (status.artefact.jobUid)."),
]


def report(
    name: ExperimentName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder to create. Default: NAME-report."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Fetch the report, the plan and the data of an experiment from its store.

    The folder has report.html, report.md, the machine-readable result, the data, the registered plan, the
    in-toto statements, and rerun.yaml, a manifest that runs the plan again. The folder appears only when it
    is complete.
    """
    to = output or Path(f"{name}-report")
    require_free(to, folder=True)
    found = fetch(name, namespace, context, StoreOptions(store, uid, endpoint, folder, operator))
    with write_atomically(to, folder=True) as partial:
        partial.mkdir()
        for file, content in found.files.items():
            (partial / file).write_bytes(content)
    typer.echo(f"experiment/{name}: {', '.join(sorted(found.files))} in {to}")
    page = (to / HTML_FILE).resolve()
    if show and not (page.is_file() and webbrowser.open(page.as_uri())):
        typer.echo(f"no browser could be opened: open {page} yourself", err=True)
