"""The command cost, which shows the cost of SpotPools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from convoy.cli.cluster import Context, connect
from convoy.cli.spot import focus
from convoy.cli.spot.pools import PoolName
from convoy.cli.table import new_table, print_table
from convoy_crds.spotpool import SpotPool


class Format(StrEnum):
    """Output formats of `convoy spot cost`."""

    TABLE = "table"
    JSON = "json"
    FOCUS = "focus"
    """CSV with the columns of FOCUS, the FinOps Open Cost and Usage Specification."""


def cost(
    name: PoolName = None,
    output: Annotated[
        Format, typer.Option("--format", help="Output format. focus is CSV with the columns of FOCUS.")
    ] = Format.TABLE,
    context: Context = None,
) -> None:
    """Show the cost of SpotPools by namespace.

    The table also has the unused part, and the part that no operator observed.
    A spot node counts from its creation to its deletion, an on-demand node while it runs pods of the pool.
    The command needs the right to read SpotPools in the whole cluster.
    """
    client = connect(None, context)
    found = client.spot_pools.list() if name is None else [client.spot_pools.get(name)]
    if output is Format.JSON:
        typer.echo(json.dumps([as_json(pool) for pool in found], indent=2))
        return
    if output is Format.FOCUS:
        typer.echo(focus.csv_text(found), nl=False)
        if missing := focus.without_currency(found):
            names = ", ".join(missing)
            typer.echo(f"BillingCurrency is empty: set spec.price.currency of SpotPool {names}", err=True)
        return
    if not found:
        typer.echo("no SpotPools in the cluster")
        return
    print_table(cost_table(found))
    for line in remarks(found):
        typer.echo(line)


def as_json(pool: SpotPool) -> dict[str, Any]:
    """Return the cost of a pool as JSON values."""
    return {"pool": pool.metadata.name, **pool.status.cost.to_dict()}


def cost_table(found: list[SpotPool]) -> Table:
    """Return a table with one line for each part of each pool's cost."""
    table = new_table()
    for head in ("POOL", "USE", "COST", "SHARE", "CURRENCY"):
        table.add_column(head, justify="right" if head in ("COST", "SHARE") else "left")
    for pool in found:
        here = pool.status.cost
        total = here.spot + here.on_demand
        parts = {f"namespace {one.namespace}": one.spend for one in here.by_namespace}
        parts |= {"unused": here.unused, "not observed": here.residual, "total": total}
        for use, spend in parts.items():
            share = f"{spend / total:.0%}" if total else "-"
            table.add_row(pool.metadata.name, use, f"{spend:.2f}", share, here.currency or "-")
    return table


def remarks(found: list[SpotPool]) -> Iterator[str]:
    """Yield remarks on costs that are not final, and on budgets."""
    for pool in found:
        start, here, limit = f"spotpool/{pool.metadata.name}", pool.status.cost, pool.spec.budget.max_spend
        if here.provisional:
            yield f"{start}: {here.provisional:.2f} count at the on-demand price; the spot price is unknown"
        if limit is not None:
            share = (here.spot + here.on_demand) / limit
            yield f"{start}: {share:.0%} of spec.budget.maxSpend {limit:g} is spent"
        yield f"{start}: the present nodes cost {here.per_hour:.2f} per hour"
