"""The command rm, which deletes all checkpoints that an ended or deleted job has in its store."""

from __future__ import annotations

import sys

import typer

from convoy.cli import table
from convoy.cli.change import Yes
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    JobStore,
    Operator,
    SavedJob,
    StoreName,
    Uid,
    list_all_jobs,
    store_errors_as_failures,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL


def rm(
    name: Name,
    yes: Yes = False,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Delete everything that a job has in its store.

    The job must have ended or been deleted. Deleting a TrainingJob does not delete its checkpoints in the
    store. After `convoy checkpoint rm`, no job can restore these checkpoints.
    """
    saved_job = SavedJob.find(name, store, uid, namespace, context)
    if why := refusal(saved_job):
        raise Failure(why)
    if (others := trace_store_hint(saved_job)) and not saved_job.store:
        raise Failure(others)
    part = saved_job.open_store(operator, endpoint, folder)
    objects, size, generations = stored_objects(part)
    if not objects:
        typer.echo(f"{name} has nothing in the store")
        _show(others)
        return
    what = f"{generations} generation{'s' if generations != 1 else ''} ({table.format_bytes(size)}) of {name}"
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(f"stdin is not a terminal, so Convoy cannot ask: add --yes to delete {what}")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    with store_errors_as_failures():
        done = part.store.erase()
    typer.echo(f"{what}: {done} objects deleted")
    _show(others)


def _show(hint: str | None) -> None:
    if hint:
        typer.echo(hint, err=True)


def trace_store_hint(saved_job: SavedJob) -> str | None:
    """Return how to delete the traces of an ended job that are in another store than its checkpoints; None
    if there is no such store.
    """
    job = saved_job.job
    if job is None or job.spec.trace_store in (None, saved_job.store):
        return None
    store = job.spec.trace_store
    return (
        f"traces of {saved_job.name} may be in CheckpointStore {store}: repeat the command with "
        f"--store {store} --uid {saved_job.uid}"
    )


def refusal(saved_job: SavedJob) -> str | None:
    """Return the reason why the job's checkpoints must not be deleted; None if they may be deleted."""
    job = saved_job.job or find_by_uid(saved_job)
    if job is None or job.status.phase in TERMINAL:
        return None
    kept = (saved_job.store, job.spec.checkpoint.tiers.store, job.spec.trace_store)
    stores = dict.fromkeys(filter(None, kept))
    commands = " and with ".join(f"--store {store} --uid {job.metadata.uid}" for store in stores)
    then = f", then repeat the command with {commands}" if commands else ""
    return (
        f"{saved_job.name} has not ended ({job.status.phase or 'Pending'}) and may need its checkpoints: "
        f"delete the job{then}"
    )


def find_by_uid(saved_job: SavedJob) -> TrainingJob | None:
    """Return the job that has the uid of `saved_job`; None if the job does not exist. Raises Failure if the
    user may not list jobs.
    """
    jobs = list_all_jobs(saved_job.client)
    if jobs is None:
        raise Failure(
            "you may not list the jobs of all namespaces, so Convoy cannot check that the job is deleted: "
            "ask an administrator to run this command"
        )
    return next((job for job in jobs if job.metadata.uid == saved_job.uid), None)


def stored_objects(part: JobStore) -> tuple[int, int, int]:
    """Return the number of objects that the job has in the store, their total bytes, and the number of
    generations.
    """
    from convoy_agents.tiercheck.stores.part import FOLDERS  # noqa: PLC0415

    with store_errors_as_failures():
        found = {folder: part.store.listing(folder) for folder in FOLDERS}
    sizes = [size for one in found.values() for size in (*one.sizes.values(), *one.unfinished.values())]
    return len(sizes), sum(sizes), len(found["records"].written)
