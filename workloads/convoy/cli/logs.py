"""`convoy logs`: the output of the ranks, told apart by rank and incarnation."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Name, Namespace, connect


def logs(
    name: Name,
    rank: Annotated[int | None, typer.Option(metavar="RANK", help="One rank; all when left out.")] = None,
    incarnation: Annotated[
        int | None, typer.Option(metavar="INCARNATION", help="One incarnation; all when left out.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until the job, or the incarnation, ends."),
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print what the ranks wrote. Each line begins with [incarnation/rank].

    Logs are those of the pods there are: what a replaced or suspended pod wrote went with it. A rank is read
    where it is now, if no earlier incarnation is named.
    """
    jobs = connect(namespace, context).training_jobs
    shown = 0
    for line in jobs.logs(name, rank=rank, incarnation=incarnation, follow=follow, notify=_notify):
        shown += 1
        typer.echo(line)
    if not shown:
        typer.echo("no such line is in the logs of the pods that there are now", err=True)


def _notify(sentence: str) -> None:
    typer.echo(sentence, err=True)
