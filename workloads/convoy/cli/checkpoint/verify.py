"""`convoy checkpoint verify`: reads every byte of a generation and looks at its digest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from convoy.cli import table
from convoy.cli.checkpoint.contents import (
    Contents,
    Fault,
    faults,
    label,
    readable,
    refusal,
    to_verify,
    told,
)
from convoy.cli.checkpoint.progress import moving
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    Part,
    StoreName,
    Subject,
    Uid,
    Which,
    asking,
    generation_of,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace
from convoy_controllers.checkpoint.records import Chunk, Record

RETRIES = 1000
"""Of all operations of one command together; of each there are few."""
MAX_LINES = 50
"""Faults that are named."""


def verify(
    name: Name,
    generation: Which = None,
    everything: Annotated[bool, typer.Option("--all", help="All generations, each chunk once.")] = False,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Check every byte of a generation in its store.

    Reads all that it needs and looks at the digests: the newest of the run when no other is named. What is
    damaged or missing is named, and the status is 1.
    """
    which = generation_of(generation)
    if everything and which is not None:
        raise Failure("--all looks at all generations, --generation at one: leave one of them out")
    part = Subject.find(name, store, uid, namespace, context).reach(operator, endpoint, folder)
    contents = part.look()
    records = to_verify(contents, which, everything)
    unreadable = unread(contents, everything) if which is None else []
    if not records and not unreadable:
        raise Failure(refusal(name, which, None))
    chunks = readable(contents, records)
    damaged = examined(part, chunks)
    found = [fault for record in records for fault in faults(contents, record, damaged)]
    if found:
        # The job may have deleted what could not be read.
        contents = part.look()
        records = [one for one in records if one.generation in contents.inventory.records]
        found = [fault for record in records for fault in faults(contents, record, damaged)]
        if not records:
            raise Failure(f"{name} has deleted the generation meanwhile; try again")
    say(unreadable, found)
    if unreadable or found:
        raise Failure(f"{name} is not whole in the store: {counted(unreadable, found)}")
    typer.echo(verdict(name, records, chunks))


def unread(contents: Contents, everything: bool) -> list[str]:
    """What is malformed and may hide a generation: records; of all generations anything."""
    return [one for one in contents.malformed if everything or "/records/" in one]


def examined(part: Part, chunks: Sequence[Chunk]) -> dict[str, str]:
    """Reads chunks; by digest what is wrong with those that are damaged. Failure when the store fails."""
    from convoy_agents.tiercheck.stores.upload import Retries, TransferLimits, verify_chunks  # noqa: PLC0415

    stop = threading.Event()
    with asking(), moving(f"reading {part.name}", sum(chunk.length for chunk in chunks)) as advance:
        try:
            return verify_chunks(
                part.store,
                chunks,
                lambda chunk: advance(chunk.length),
                stop=stop,
                limits=TransferLimits(retries=Retries(budget=RETRIES)),
            )
        finally:
            stop.set()


def say(unreadable: Sequence[str], found: Sequence[Fault]) -> None:
    """Names what is wrong on stderr."""
    damaged, missing = told(found)
    lines = [*(f"cannot be read: {one}" for one in unreadable), *damaged, *missing]
    for one in lines[:MAX_LINES]:
        typer.echo(one, err=True)
    if len(lines) > MAX_LINES:
        typer.echo(f"... and {len(lines) - MAX_LINES} more", err=True)


def counted(unreadable: Sequence[str], found: Sequence[Fault]) -> str:
    """How much is wrong: `1 damaged, 2 missing`."""
    damaged, missing = told(found)
    return f"{len(unreadable) + len(damaged)} damaged, {len(missing)} missing"


def verdict(name: str, records: Sequence[Record], chunks: Sequence[Chunk]) -> str:
    """What is said when nothing is wrong."""
    size = table.amount(sum(chunk.length for chunk in chunks))
    which = ", ".join(label(one.generation) for one in records) or "nothing"
    count = f"{len(chunks)} chunk{'s' if len(chunks) != 1 else ''}"
    return f"{name} {which}: {count} ({size}) read, all as they were written"
