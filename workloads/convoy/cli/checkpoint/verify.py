"""The command verify, which reads every chunk of a generation and checks its digest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated

import typer

from convoy.cli import table
from convoy.cli.checkpoint.contents import (
    Contents,
    Fault,
    fault_lines,
    faults,
    label,
    refusal,
    stored_chunks,
    to_verify,
)
from convoy.cli.checkpoint.progress import progress_bar
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    JobStore,
    Operator,
    SavedJob,
    StoreName,
    Uid,
    parse_generation,
    store_errors_as_failures,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace
from convoy_controllers.checkpoint.records import Chunk, Record

RETRY_BUDGET = 1000
"""Maximum number of retries that all store operations of one command may make together. Each single
operation also has its own, lower limit.
"""
MAX_LINES = 50
"""Maximum number of faults to list."""


def verify(
    name: Name,
    generation: Annotated[
        str | None,
        typer.Option(
            "--generation",
            metavar="I/S",
            help="Incarnation and step, such as 2/1500. Default: the newest generation.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Verify all generations. Each chunk is read once.")
    ] = False,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Verify every byte of a generation in its store.

    The command reads all chunks of the generation and checks their digests. Without --generation it
    verifies the newest generation. The command lists damaged and missing objects and then ends with exit
    status 1.
    """
    which = parse_generation(generation)
    if everything and which is not None:
        raise Failure("--all and --generation cannot be combined")
    part = SavedJob.find(name, store, uid, namespace, context).open_store(operator, endpoint, folder)
    contents = part.read()
    records = to_verify(contents, which, everything)
    unreadable = unreadable_objects(contents, everything) if which is None else []
    if not records and not unreadable:
        raise Failure(refusal(name, which, None))
    chunks = stored_chunks(contents, records)
    damaged = find_damaged(part, chunks)
    found = [fault for record in records for fault in faults(contents, record, damaged)]
    if found:
        # Read the contents again, because the job may have deleted a generation during the check. Its chunks
        # are neither damaged nor missing.
        contents = part.read()
        records = [one for one in records if one.generation in contents.inventory.records]
        found = [fault for record in records for fault in faults(contents, record, damaged)]
        if not records:
            raise Failure(f"{name} deleted the generation during the verification: run the command again")
    print_faults(unreadable, found)
    if unreadable or found:
        raise Failure(f"the checkpoints of {name} are not whole: {count_faults(unreadable, found)}")
    typer.echo(verdict(name, records, chunks))


def unreadable_objects(contents: Contents, everything: bool) -> list[str]:
    """Return a line for each object that cannot be read and that counts as a fault.

    An unreadable record always counts, because it may be the record of any generation. Other unreadable
    objects count only if `everything` is True.
    """
    return [one for one in contents.malformed if everything or "/records/" in one]


def find_damaged(part: JobStore, chunks: Sequence[Chunk]) -> dict[str, str]:
    """Read the chunks and return the error message of each damaged chunk, by digest. Raises Failure if the
    store fails.
    """
    from convoy_agents.tiercheck.stores.upload import Retries, TransferLimits, verify_chunks  # noqa: PLC0415

    stop = threading.Event()
    with (
        store_errors_as_failures(),
        progress_bar(f"reading {part.name}", sum(chunk.length for chunk in chunks)) as advance,
    ):
        try:
            return verify_chunks(
                part.store,
                chunks,
                lambda chunk: advance(chunk.length),
                stop=stop,
                limits=TransferLimits(retries=Retries(budget=RETRY_BUDGET)),
            )
        finally:
            stop.set()


def print_faults(unreadable: Sequence[str], found: Sequence[Fault]) -> None:
    """Print the lines about unreadable, damaged and missing objects on stderr."""
    damaged, missing = fault_lines(found)
    lines = [*(f"cannot be read: {one}" for one in unreadable), *damaged, *missing]
    for one in lines[:MAX_LINES]:
        typer.echo(one, err=True)
    if len(lines) > MAX_LINES:
        typer.echo(f"... and {len(lines) - MAX_LINES} more", err=True)


def count_faults(unreadable: Sequence[str], found: Sequence[Fault]) -> str:
    """Return the number of faults, such as `1 damaged, 2 missing`."""
    damaged, missing = fault_lines(found)
    return f"{len(unreadable) + len(damaged)} damaged, {len(missing)} missing"


def verdict(name: str, records: Sequence[Record], chunks: Sequence[Chunk]) -> str:
    """Return the message for a verification that found no faults."""
    size = table.format_bytes(sum(chunk.length for chunk in chunks))
    which = ", ".join(label(one.generation) for one in records) or "nothing"
    count = f"{len(chunks)} chunk{'s' if len(chunks) != 1 else ''}"
    return f"{name} {which}: {count} ({size}) read, all digests match"
