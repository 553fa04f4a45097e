"""The command fetch, which downloads the newest traces of a job from its store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    JobStore,
    Operator,
    SavedJob,
    store_errors_as_failures,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy_crds.trainingjob_trace import TraceFile


def fetch(
    name: Name,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the traces.")] = Path(),
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Download the traces of a job's newest recording, and check every byte.

    The files are trace-RECORDING.RANK.et, as `convoy trace analyse` and the other commands read them.
    """
    client = connect(namespace, context)
    job = client.training_jobs.get(name)
    trace = job.status.trace
    if trace is None or not trace.files:
        why = f": {trace.message}" if trace is not None and trace.message else ""
        raise Failure(f"{name} has no trace in a store{why}. `convoy trace record {name}` records one")
    saved = SavedJob(client, name, job.metadata.uid, trace.store, job)
    part = saved.open_store(operator, endpoint, folder)
    for one in trace.files:
        path = _download(part, one, out)
        typer.echo(f"{path}: {one.nodes} nodes, {one.bytes} bytes")
    if slow := trace.straggler:
        place = f" on {slow.node}" if slow.node else ""
        typer.echo(f"rank {slow.rank}{place} is the straggler: {slow.cause} since step {slow.since_step}")


def _download(part: JobStore, one: TraceFile, out: Path) -> Path:
    """Write a trace into a folder, and return its path. Raises Failure if it is missing or damaged."""
    from convoy_workloads.runtime.folder.storage import write_atomic  # noqa: PLC0415

    name = one.file.rpartition("/")[2]
    with store_errors_as_failures():
        try:
            data = part.store.trace(name)
        except ValueError as error:
            raise Failure(f"status.trace.files: {error}") from error
    if data is None:
        raise Failure(f"{one.file} is missing in {part.store.where}")
    if hashlib.sha256(data).hexdigest() != one.sha256:
        raise Failure(f"{one.file} in {part.store.where} is damaged, or a later recording has replaced it")
    path = out / name
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error
    return path
