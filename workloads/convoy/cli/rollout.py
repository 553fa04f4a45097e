"""The commands `convoy rollout`, which watch and control the rollouts of ServingJobs."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Namespace, connect
from convoy.cli.jobs import ServingJobName
from convoy.cli.table import new_table, print_table
from convoy.client.awaited import WAIT_SECONDS
from convoy.client.rollout import RolloutState, state, use_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Watch and control the rollouts of ServingJobs.",
)


@app.command("status")
def status(
    name: ServingJobName,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", "-w", help="Wait until the rollout is complete or halts.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Seconds to wait for the end of the rollout."),
    ] = WAIT_SECONDS,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show the state of a rollout.

    The exit status is 0 if the rollout is complete, and with --no-watch also if it is in progress or paused.
    It is 1 if the rollout has halted, or if the timeout is over.
    """
    jobs = connect(namespace, context).serving_jobs
    if watch:
        jobs.wait_for_rollout(name, timeout, notify=typer.echo)
        return
    found, sentence = state(jobs.get(name))
    if found is RolloutState.HALTED:
        raise Failure(sentence)
    typer.echo(sentence)


@app.command("history")
def history(name: ServingJobName, namespace: Namespace = None, context: Context = None) -> None:
    """List the stored revisions of a job, the newest first.

    `convoy rollout undo --to` takes a name from this list.
    """
    job = connect(namespace, context).serving_jobs.get(name)
    if not job.status.revisions:
        typer.echo(f"servingjob/{name} has no stored revision yet")
        return
    table = new_table()
    for head in ("REVISION", "NUMBER", "STATE"):
        table.add_column(head)
    for one in job.status.revisions:
        table.add_row(one.name, str(one.number), use_of(job, one.name))
    print_table(table)


@app.command("pause")
def pause(name: ServingJobName, namespace: Namespace = None, context: Context = None) -> None:
    """Stop the replacement of replicas by a new revision.

    Convoy still restarts replicas that fail.
    """
    connect(namespace, context).serving_jobs.pause_rollout(name)
    typer.echo(f"the rollout of servingjob/{name} is paused; to go on, run: convoy rollout resume {name}")


@app.command("resume")
def resume(name: ServingJobName, namespace: Namespace = None, context: Context = None) -> None:
    """Continue a paused rollout."""
    connect(namespace, context).serving_jobs.resume_rollout(name)
    typer.echo(f"the rollout of servingjob/{name} goes on")


@app.command("undo")
def undo(
    name: ServingJobName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="REVISION",
            help="Stored revision, from `convoy rollout history`. Default: the one before the present one.",
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Roll all replicas to an earlier revision.

    The command pins this revision in spec.rollout.revision. Later changes of the spec take effect after
    `convoy rollout unpin`.
    """
    job = connect(namespace, context).serving_jobs.undo_rollout(name, to)
    typer.echo(
        f"servingjob/{name} rolls to revision {job.spec.rollout.revision} and stays there; when the spec is "
        f"corrected, run: convoy rollout unpin {name}"
    )


@app.command("unpin")
def unpin(name: ServingJobName, namespace: Namespace = None, context: Context = None) -> None:
    """Roll all replicas to the revision that the spec defines, after an undo."""
    connect(namespace, context).serving_jobs.unpin(name)
    typer.echo(f"servingjob/{name} rolls to the revision of its spec")
