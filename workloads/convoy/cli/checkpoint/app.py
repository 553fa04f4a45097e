from __future__ import annotations

import typer

from convoy.cli.checkpoint import export, fsck, ls, restore, rm, verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, verify, restore, export and delete saved checkpoints.",
)
app.command("ls")(ls.ls)
app.command("verify")(verify.verify)
app.command("restore")(restore.restore)
app.command("export")(export.export)
app.command("fsck")(fsck.fsck)
app.command("rm")(rm.rm)
