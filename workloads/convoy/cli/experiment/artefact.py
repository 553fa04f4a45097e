"""The files of a finished experiment in its store: plan, data, result and report.

The analysis job has saved each file as a tensor of bytes. The commands read them with the rights of the user.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from convoy.cli.checkpoint.contents import ends_in_journal, label
from convoy.cli.checkpoint.fetch import download_generation, shard_path
from convoy.cli.checkpoint.store_access import SavedJob
from convoy.cli.cluster import Failure
from convoy.cli.cluster import connect as connect_cluster
from convoy.client import Client
from convoy_controllers.checkpoint.restore import Restore
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import EXPERIMENT_ENDED

PREFIX = "extra.files."
"""Prefix of the names of the tensors that hold files."""
MAX_BYTES = 256 << 20
"""Maximum size of all files together."""


@dataclass(frozen=True)
class StoreOptions:
    """The options that select a store and an experiment in it."""

    store: str | None
    uid: str | None
    endpoint: str | None
    folder: Path | None
    operator: str


@dataclass(frozen=True)
class Artefact:
    """The files of a finished experiment."""

    files: dict[str, bytes]
    """The content of each file, by name."""
    experiment: Experiment | None
    """The Experiment; None if it was deleted."""


def fetch(name: str, namespace: str | None, context: str | None, options: StoreOptions) -> Artefact:
    """Return the files of the experiment `name`. Raises Failure if there are none, or if the user may not
    read the store.
    """
    if bool(options.store) != bool(options.uid):
        raise Failure("--store and --uid go together: give both to select a deleted experiment")
    client = connect_cluster(namespace, context)
    if options.store and options.uid:
        return Artefact(_read(client, name, options.uid, options.store, options), None)
    experiment = client.experiments.get(name)
    found = experiment.status.artefact
    if found is None or not found.job_uid:
        raise Failure(no_artefact_reason(experiment))
    return Artefact(_read(client, name, found.job_uid, found.store, options), experiment)


def no_artefact_reason(experiment: Experiment) -> str:
    """Return a message that says why an experiment has no report."""
    name, here = experiment.metadata.name, experiment.status
    why = f" ({here.reason}): {here.message}" if here.reason else ""
    if here.phase in EXPERIMENT_ENDED:
        return f"experiment/{name} ended without a report{why}"
    return (
        f"experiment/{name} has no report yet, because it is {here.phase or 'not reconciled yet'}{why}; "
        f"`convoy experiment status {name}` shows the medians so far"
    )


def _read(client: Client, name: str, uid: str, store: str, options: StoreOptions) -> dict[str, bytes]:
    from convoy_workloads.runtime.tiers.shard import ShardError, read  # noqa: PLC0415

    saved = SavedJob(client, f"experiment/{name}", uid, store)
    part = saved.open_store(options.operator, options.endpoint, options.folder)
    with tempfile.TemporaryDirectory(prefix="convoy-") as scratch:
        beside = Path(scratch) / "shards"
        plan = download_generation(part, part.read(), None, beside, _refusal)
        files = {}
        try:
            for links in plan.shards.values():
                shard = read(memoryview(shard_path(beside, links[0].manifest).read_bytes()))
                for one in shard.parts:
                    if one.name.startswith(PREFIX) and one.sizes == one.shape:
                        content = shard.bytes[one.at : one.at + one.length]
                        files[one.name.removeprefix(PREFIX)] = bytes(content)
        except ShardError as error:
            raise Failure(f"{label(plan.record.generation)} of experiment/{name}: {error}") from error
    for file in files:
        if Path(file).name != file or file.startswith("."):
            raise Failure(f"experiment/{name}: {file!r} is not a valid file name")
    if not files:
        raise Failure(f"the store has no files of experiment/{name}, but a checkpoint of another job")
    return files


def _refusal(plan: Restore) -> str:
    """Return the reason why a generation cannot be the files of an experiment; an empty text otherwise."""
    size = sum(link.manifest.size for links in plan.shards.values() for link in links)
    if size > MAX_BYTES:
        return f"{label(plan.record.generation)} has {size} bytes: these are not the files of an experiment"
    return "these are not the files of an experiment, but a journal" if ends_in_journal(plan) else ""
