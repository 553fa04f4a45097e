"""The command verify, which computes the result of an experiment again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.store_access import OPERATOR, Endpoint, Folder, Operator
from convoy.cli.cluster import Context, Failure, Namespace
from convoy.cli.experiment.artefact import Artefact, StoreOptions, fetch
from convoy.cli.experiment.report import StoreName, Uid
from convoy.cli.experiment.status_check import status_differences
from convoy.client import NoCluster, NotFound
from convoy_crds.experiment import Experiment

MAX_LINES = 50
"""Maximum number of differences to list."""
MAX_BYTES = 64 << 20
"""Maximum size of a file in a folder."""


@dataclass(frozen=True)
class Findings:
    """The result of a re-computation."""

    differences: list[str] = field(default_factory=list)
    """Lines about figures that differ."""
    remarks: list[str] = field(default_factory=list)
    """Lines about sentences that another release words differently."""


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
    status is 1 if a figure, a verdict or a digest differs. Other words of another release are only a remark.
    """
    if Path(name).is_dir():
        stored = Artefact(_files(Path(name)), None)
    else:
        stored = _fetch(name, namespace, context, StoreOptions(store, uid, endpoint, folder, operator))
    found = findings(stored.files, stored.experiment)
    _print(found.remarks, "remark: ")
    _print(found.differences, "")
    if found.differences:
        raise Failure(f"{name} differs from its re-computation in {len(found.differences)} places")
    report = "result" if found.remarks else "result and report"
    compared = ", as does the status" if stored.experiment is not None else ""
    typer.echo(f"{name}: plan, data, {report} agree with their re-computation{compared}")


def _print(lines: list[str], mark: str) -> None:
    for line in lines[:MAX_LINES]:
        typer.echo(mark + line, err=True)
    if len(lines) > MAX_LINES:
        typer.echo(f"{mark}... and {len(lines) - MAX_LINES} more", err=True)


def _fetch(name: str, namespace: str | None, context: str | None, options: StoreOptions) -> Artefact:
    """Return the files of an experiment in its store. The error names the missing folder, because the user
    may have meant one.
    """
    if "/" in name:
        raise Failure(f"there is no folder {name!r}")
    try:
        return fetch(name, namespace, context, options)
    except (NoCluster, NotFound) as error:
        raise Failure(f"there is no folder {name!r}, and in a cluster: {error}") from error


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


def findings(files: Mapping[str, bytes], experiment: Experiment | None) -> Findings:
    """Return the differences between the stored files, the status of the experiment and the re-computation.
    Raises Failure if the files cannot be computed again.
    """
    try:
        from convoy_workloads.experiments.verify import release  # noqa: PLC0415
        from convoy_workloads.experiments.verify import verify as recompute  # noqa: PLC0415
    except ImportError as error:
        raise Failure(
            f"verifying an experiment needs {error.name}, which is not installed: "
            "pip install '.[cli,tools]' in the folder of Convoy's source"
        ) from error
    here = experiment.status if experiment is not None else None
    digest = here.artefact.digest if here is not None and here.artefact is not None else ""
    plan = here.plan.hash if here is not None and here.plan is not None else ""
    found = Findings()
    try:
        for one in recompute(files, digest, plan):
            (found.remarks if one.words_only else found.differences).append(str(one))
        if experiment is not None:
            found.differences.extend(status_differences(files, experiment.status))
    except ValueError as error:
        raise Failure(f"the result cannot be computed again: {error}") from error
    if found.remarks:
        found.remarks.insert(0, _releases(release(files)))
    return found


def _releases(stored: str) -> str:
    try:
        here = version("convoy-operator")
    except PackageNotFoundError:
        here = "unknown"
    return f"release {stored} of Convoy wrote the files, release {here} checks them: some words differ"
