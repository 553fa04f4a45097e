"""The command verify, which computes the result of an experiment again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.store_access import OPERATOR, Endpoint, Folder, Operator
from convoy.cli.cluster import Context, Failure, Namespace
from convoy.cli.experiment.artefact import StoreOptions, fetch
from convoy.cli.experiment.report import StoreName, Uid
from convoy.cli.experiment.status_check import status_differences
from convoy_crds.experiment import Experiment

MAX_LINES = 50
"""Maximum number of differences to list."""
MAX_BYTES = 64 << 20
"""Maximum size of a file in a folder."""


def verify(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME|DIR", help="Name of the Experiment, or folder with its files."),
    ],
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Compute the result of an experiment again from its plan and its data, and list each difference.

    The command checks the hash of the plan, the digests in the statements and in the status, and recomputes
    the whole analysis and the report. A folder of `convoy experiment report` needs no cluster. The exit
    status is 1 if anything differs.
    """
    if Path(name).is_dir():
        files, experiment = _files(Path(name)), None
    else:
        found = fetch(name, namespace, context, StoreOptions(store, uid, endpoint, folder, operator))
        files, experiment = found.files, found.experiment
    lines = differences(files, experiment)
    for line in lines[:MAX_LINES]:
        typer.echo(line, err=True)
    if len(lines) > MAX_LINES:
        typer.echo(f"... and {len(lines) - MAX_LINES} more", err=True)
    if lines:
        raise Failure(f"{name} differs from its re-computation in {len(lines)} places")
    compared = ", as does the status" if experiment is not None else ""
    typer.echo(f"{name}: plan, data, result and report agree with their re-computation{compared}")


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a folder. Raises Failure if one cannot be read or is too large."""
    found = {}
    try:
        for path in sorted(folder.iterdir()):
            if not path.is_file():
                continue
            if path.stat().st_size > MAX_BYTES:
                raise Failure(f"{path} has more than {MAX_BYTES >> 20} MiB: it is no file of an experiment")
            found[path.name] = path.read_bytes()
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    return found


def differences(files: Mapping[str, bytes], experiment: Experiment | None) -> list[str]:
    """Return a line for each difference between the stored files, the status of the experiment and the
    re-computation. Raises Failure if the files cannot be computed again.
    """
    try:
        from convoy_workloads.experiments.verify import verify as recompute  # noqa: PLC0415
    except ImportError as error:
        raise Failure(
            f"verifying an experiment needs {error.name}, which is not installed: "
            "pip install '.[cli,tools]' in the folder of Convoy's source"
        ) from error
    here = experiment.status if experiment is not None else None
    digest = here.artefact.digest if here is not None and here.artefact is not None else ""
    plan = here.plan.hash if here is not None and here.plan is not None else ""
    found: Iterable[object]
    try:
        found = recompute(files, digest, plan)
        if experiment is not None:
            found = [*found, *status_differences(files, experiment.status)]
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"the result cannot be computed again: {error}") from error
    return [str(one) for one in found]
