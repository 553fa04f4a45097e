"""The command pools, which shows SpotPools, their notices and the pods that they grant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from convoy.cli.cluster import Context, connect
from convoy.cli.table import new_table, print_table
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import NodeNotice
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS, age

PoolName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Name of the SpotPool. Default: all pools.")
]


def pools(name: PoolName = None, context: Context = None) -> None:
    """Show SpotPools, or one with its notices and granted pods.

    A notice announces that a node will disappear. Granted pods are those that a role may place on the pool.
    The command needs the right to read SpotPools in the whole cluster.
    """
    client = connect(None, context)
    now = datetime.now(UTC)
    if name is None:
        found = client.spot_pools.list()
        if found:
            print_table(pools_table(found, now))
        else:
            typer.echo("no SpotPools in the cluster")
        return
    pool = client.spot_pools.get(name)
    for line in head(pool, now):
        typer.echo(line)
    if pool.status.notices:
        typer.echo("\nnotices")
        print_table(notices_table(pool.status.notices, now))
    if pool.status.grants:
        typer.echo("\ngranted pods")
        print_table(grants_table(pool))


def pools_table(found: Sequence[SpotPool], now: datetime) -> Table:
    """Return a table of pools. The reason is that of the first condition that is False."""
    table = new_table()
    for title in ("NAME", "MODE", "READY", "NOTICED", "PREEMPTIONS", "PRICE", "PER HOUR", "AGE", "REASON"):
        table.add_column(title)
    for pool in found:
        status = pool.status
        wrong = [one.reason for one in status.conditions if one.status == "False"]
        table.add_row(
            pool.metadata.name,
            status.mode,
            str(status.nodes.ready),
            str(status.nodes.noticed + status.nodes.draining),
            str(status.preemptions.total),
            f"{status.price.per_hour:g}" + ("" if status.price.known else " (on-demand)"),
            f"{status.cost.per_hour:.2f}",
            age(pool.metadata.creation_timestamp, now),
            next(iter(wrong), "-"),
        )
    return table


def head(pool: SpotPool, now: datetime) -> Iterator[str]:
    """Yield the lines about the whole pool."""
    status, name = pool.status, pool.metadata.name
    if not status.conditions:
        yield f"spotpool/{name}: {NOT_RECONCILED}"
        return
    nodes = status.nodes
    since = f" for {age(status.mode_since, now)}" if status.mode_since is not None else ""
    yield f"spotpool/{name}: new pods are placed on {status.mode} capacity{since}"
    others = {
        "booting": nodes.booting,
        "noticed": nodes.noticed,
        "draining": nodes.draining,
        "lost": nodes.lost,
        "on-demand": nodes.on_demand,
    }
    more = "".join(f", {count} {state}" for state, count in others.items() if count)
    yield f"nodes: {nodes.ready} ready{more}; {nodes.gone} have left"
    counts = status.preemptions
    lead = f", median notice {status.notice_seconds.p50:.0f} s" if status.notice_seconds is not None else ""
    yield (
        f"preemptions: {counts.total}, {counts.with_notice} with and {counts.without_notice} without a notice"
        f"{lead}; {counts.false_alarms} wrong notices"
    )
    for one in status.conditions:
        if one.status == "False" or one.reason in WARNING_REASONS:
            yield f"{one.reason}: {one.message}"


def notices_table(notices: Sequence[NodeNotice], now: datetime) -> Table:
    """Return a table of notices."""
    table = new_table()
    for title in ("NODE", "KIND", "STATE", "DEADLINE", "SOURCES", "REPEATS", "AGE"):
        table.add_column(title)
    for one in notices:
        deadline = f"{one.deadline:%H:%M:%SZ}" if one.deadline is not None else "-"
        sources = ",".join(one.sources) or "-"
        table.add_row(one.node, one.kind, one.state, deadline, sources, str(one.repeats), age(one.at, now))
    return table


def grants_table(pool: SpotPool) -> Table:
    """Return a table of the roles that claim the pool."""
    table = new_table()
    for title in ("NAMESPACE", "JOB", "ROLE", "PODS", "CAPACITY", "REASON"):
        table.add_column(title)
    for one in pool.status.grants:
        table.add_row(one.namespace, one.job, one.role, str(one.pods), one.mode, one.reason or "-")
    return table
