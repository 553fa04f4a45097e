"""The group of commands `convoy spot`."""

from __future__ import annotations

import typer

from convoy.cli.spot import cost, pools, requests, simulate

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show SpotPools, their cost and the requests of jobs that use them, or simulate spot nodes.",
)
app.command("pools")(pools.pools)
app.command("cost")(cost.cost)
app.command("requests")(requests.requests)
app.command("simulate")(simulate.simulate)
