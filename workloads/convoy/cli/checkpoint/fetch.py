"""Downloads a generation into a folder and checks every byte. The folder gets these files:

    record.json                     COMMIT: the manifests of the generation, by shard
    manifests/<id>.json
    shards/<shard>/gen-<i>-<s>      the bytes of a shard

A shard with a journal has one file for its base and one file for each journal segment.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import typer

from convoy.cli.checkpoint.contents import Contents, choose_generation, describe_skipped, label, refusal
from convoy.cli.checkpoint.files import delete
from convoy.cli.checkpoint.progress import progress_bar
from convoy.cli.checkpoint.store_access import JobStore, store_errors_as_failures
from convoy.cli.checkpoint.verify import RETRY_BUDGET
from convoy.cli.cluster import Failure
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Manifest
from convoy_controllers.checkpoint.restore import REMOTE, Restore

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class DamagedShard(Exception):
    """Raised if a shard is damaged in the store."""

    def __init__(self, manifest: Manifest, why: str) -> None:
        super().__init__(why)
        self.manifest = manifest


def download_generation(
    part: JobStore,
    contents: Contents,
    which: Generation | None,
    folder: Path,
    refuse: Callable[[Restore], str] = lambda _: "",
) -> Restore:
    """Download the generation `which` into a new folder. If `which` is None, download the newest whole
    generation of the run.

    If `which` is None and a shard of that generation turns out to be damaged, print the damage and download
    the next older whole generation instead, as a job would. `refuse` returns the reason why a generation
    cannot be used, or an empty text. Raises Failure if no generation is usable, and OSError if the folder
    cannot be written.
    """
    broken: set[tuple[str, str]] = set()
    while True:
        plan = choose_generation(contents, which, broken)
        if not isinstance(plan, Restore):
            raise Failure(refusal(part.name, which, plan))
        if plan.skipped:
            typer.echo(
                f"using the older generation {label(plan.record.generation)}: {describe_skipped(plan)}",
                err=True,
            )
        if why := refuse(plan):
            raise Failure(why)
        try:
            _download(part, plan, folder)
        except DamagedShard as error:
            typer.echo(f"{label(plan.record.generation)}, shard {error.manifest.shard}: {error}", err=True)
            broken.add((REMOTE, error.manifest.id))
            delete(folder)
        else:
            return plan


def shard_path(folder: Path, manifest: Manifest) -> Path:
    """Return the path for a shard's file. Raises Failure if the shard's name is not a valid file name."""
    if not _PLAIN.fullmatch(manifest.shard):
        raise Failure(
            f"shard {manifest.shard!r} of {label(manifest.generation)}: the name is not a valid file name"
        )
    return folder / "shards" / manifest.shard / manifest.generation.name


def _download(part: JobStore, plan: Restore, folder: Path) -> None:
    """Download the record, manifests and shards of a plan. Raises DamagedShard if a shard is damaged,
    Failure if the store fails, and OSError if a file cannot be written.
    """
    manifests = [link.manifest for links in plan.shards.values() for link in links]
    (folder / "manifests").mkdir(parents=True)
    (folder / "record.json").write_bytes(plan.record.text)
    stop = threading.Event()
    with (
        store_errors_as_failures(),
        progress_bar(f"reading {part.name}", sum(one.size for one in manifests)) as advance,
    ):
        try:
            for one in manifests:
                (folder / "manifests" / f"{one.id}.json").write_bytes(one.text)
                path = shard_path(folder, one)
                path.parent.mkdir(parents=True, exist_ok=True)
                _download_shard(part, one, path, stop, advance)
        finally:
            stop.set()


def _download_shard(
    part: JobStore, manifest: Manifest, path: Path, stop: threading.Event, advance: Callable[[int], None]
) -> None:
    from convoy_agents.tiercheck.stores.errors import Damaged  # noqa: PLC0415
    from convoy_agents.tiercheck.stores.upload import Retries, TransferLimits, download  # noqa: PLC0415

    offsets = list(itertools.accumulate((chunk.length for chunk in manifest.chunks), initial=0))
    with path.open("xb") as file:

        def write(index: int, data: bytes) -> None:
            left, at = memoryview(data), offsets[index]
            while left:
                done = os.pwrite(file.fileno(), left, at)
                left, at = left[done:], at + done
            advance(len(data))

        try:
            limits = TransferLimits(retries=Retries(budget=RETRY_BUDGET))
            download(part.store, manifest, write, stop=stop, limits=limits)
        except Damaged as error:
            raise DamagedShard(manifest, str(error)) from error
