"""`convoy checkpoint rm`: deletes what a job that is over has in its store."""

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
    """Delete all that a job has in its store.

    For a job that has ended, or is gone: deleting a job leaves what it saved in the store where it is. Nobody
    can go on from it any more afterwards.
    """
    saved_job = SavedJob.find(name, store, uid, namespace, context)
    if why := refusal(saved_job):
        raise Failure(why)
    part = saved_job.open_store(operator, endpoint, folder)
    objects, size, generations = stored_objects(part)
    if not objects:
        typer.echo(f"{name} has nothing in the store")
        return
    what = f"{generations} generation{'s' if generations != 1 else ''} ({table.format_bytes(size)}) of {name}"
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(f"say --yes to delete {what}")
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    with store_errors_as_failures():
        done = part.store.erase()
    typer.echo(f"{what}: {done} objects deleted")


def refusal(saved_job: SavedJob) -> str | None:
    """Why nothing of it may be deleted; None when it may."""
    job = saved_job.job or find_by_uid(saved_job)
    if job is None or job.status.phase in TERMINAL:
        return None
    return (
        f"{saved_job.name} has not ended ({job.status.phase or 'Pending'}): what it saved may be needed; "
        "delete the job first, and then say "
        f"--store {job.spec.checkpoint.tiers.store} --uid {job.metadata.uid}"
    )


def find_by_uid(saved_job: SavedJob) -> TrainingJob | None:
    """The job of that uid, which is said to be gone, when it is not. Failure when that cannot be seen."""
    jobs = list_all_jobs(saved_job.client)
    if jobs is None:
        raise Failure(
            "you may not list the jobs of all namespaces, so it cannot be seen whether this one is gone: ask "
            "somebody who may"
        )
    return next((job for job in jobs if job.metadata.uid == saved_job.uid), None)


def stored_objects(part: JobStore) -> tuple[int, int, int]:
    """Objects, bytes and generations that are there."""
    from convoy_agents.tiercheck.stores.part import FOLDERS  # noqa: PLC0415

    with store_errors_as_failures():
        found = {folder: part.store.listing(folder) for folder in FOLDERS}
    sizes = [size for one in found.values() for size in (*one.sizes.values(), *one.unfinished.values())]
    return len(sizes), sum(sizes), len(found["records"].written)
