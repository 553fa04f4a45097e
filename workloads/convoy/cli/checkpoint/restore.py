"""The command restore, which downloads a generation unchanged into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli import table
from convoy.cli.checkpoint.contents import label
from convoy.cli.checkpoint.fetch import download_generation
from convoy.cli.checkpoint.files import require_free, write_atomically
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    SavedJob,
    StoreName,
    Uid,
    Which,
    parse_generation,
)
from convoy.cli.cluster import Context, Name, Namespace


def restore(
    name: Name,
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="Folder to create, or an existing empty folder.")
    ],
    generation: Which = None,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Download a generation into a folder.

    The command downloads the shards and manifests and checks every byte. Without --generation it downloads
    the newest whole generation. The folder appears only when the download is complete.
    """
    which = parse_generation(generation)
    require_free(to, folder=True)
    part = SavedJob.find(name, store, uid, namespace, context).open_store(operator, endpoint, folder)
    contents = part.read()
    with write_atomically(to, folder=True) as partial:
        plan = download_generation(part, contents, which, partial)
    size = sum(link.manifest.size for links in plan.shards.values() for link in links)
    count = f"{len(plan.shards)} shard{'s' if len(plan.shards) != 1 else ''}"
    typer.echo(f"{name} {label(plan.record.generation)}: {count} ({table.format_bytes(size)}) in {to}")
