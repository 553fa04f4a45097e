"""Opens the index of a rank: the one in its state folder, else a copy of the generation or the snapshot in
spec.model, else an empty one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy_crds import terms
from convoy_crds.shown import shown
from convoy_workloads.engines.aperon import generation
from convoy_workloads.engines.aperon.errors import AperonError, InvalidInput
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.manifest import manifest_files
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.engines.aperon.sharding import owner
from convoy_workloads.engines.aperon.storage import Storage, flush_to_disk
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.serving.renewing import Renew, renewing

GROUP_COMMIT_SECONDS = 3600.0
"""With `fsync: always` the writer flushes for several writes together, before the log would by itself."""
_INCOMING = ".incoming"
"""Suffix of the folder of a copy that is not complete."""
ORIGIN = "origin.json"
"""File in a rank's folder with the facts of the generation that its index was restored from."""
_PART = 16 << 20


@dataclass(frozen=True, slots=True)
class Opened:
    """An index that is open, and where its records come from."""

    index: VectorIndex
    folder: Path
    source: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """Facts of the generation that the index comes from; empty without one."""


def state_folder(params: Params, environment: Mapping[str, str]) -> Path:
    """Return the folder for the files of this replica."""
    if params.state:
        return Path(params.state)
    home = environment.get(terms.ENV_HOME)
    if home:
        return Path(home) / "aperon"
    found = Path(tempfile.mkdtemp(prefix="convoy-aperon-"))
    log_line(f"the index is in {found}, a temporary folder: set params.state to keep it")
    return found


def shard_name(group: Group) -> str:
    """Return the name of a rank's folder. Another number of ranks has other folders."""
    return f"shard-{group.rank}-of-{group.world}"


def open_index(params: Params, path: Path | None, state: Path, group: Group, renew: Renew) -> Opened:
    """Open the index of a rank. `path`: folder of the model. Raises ModelError, with the file and what to
    do. `renew` is called as long as this takes.
    """
    folder = state / shard_name(group)
    try:
        state.mkdir(parents=True, exist_ok=True)
        return renewing(renew, lambda: _open(params, path, folder, group))
    except (AperonError, OSError) as error:
        raise ModelError(f"the index cannot be opened: {error}") from error


def _open(params: Params, path: Path | None, folder: Path, group: Group) -> Opened:
    if manifest_files(folder):
        index, source = _opened(params, folder), "the index in its state folder"
    elif path is not None and generation.is_generation(path):
        index, source = _from_generation(params, path, folder, group), f"the checkpoint in {path}"
    elif path is not None:
        index, source = _from_snapshot(params, path, folder, group), f"the snapshot in {path}"
    else:
        index, source = _empty(params, folder), "an index that was empty at the start"
    wanted = SearchSettings(params.index.nprobe, params.index.candidates)
    if params.index.target_recall == 0 and index.search_settings != wanted:
        index.set_search_settings(wanted)
    for problem in index.problems:
        log_line(f"used an older manifest and the log, because of a damaged file: {problem}")
    return Opened(index, folder, source, _facts_of(folder))


def options(params: Params) -> Options:
    """Return the options of the index."""
    seconds = params.fsync_seconds if params.fsync == "interval" else GROUP_COMMIT_SECONDS
    return Options(
        "never" if params.fsync == "never" else "interval",
        fsync_seconds=seconds,
        flush_rows=params.flush_rows,
        threads=params.threads,
        kernel=params.kernel,
    )


def _storage(params: Params) -> Storage:
    return Storage(durable=params.fsync != "never")


def _opened(params: Params, folder: Path) -> VectorIndex:
    """Open an index. Raises InvalidInput if it does not fit the parameters."""
    index = VectorIndex(folder, options=options(params), storage=_storage(params))
    try:
        _check(params, index.settings, folder)
    except InvalidInput:
        index.close()
        raise
    return index


def _check(params: Params, found: IndexSettings, folder: Path) -> None:
    wanted: dict[str, Any] = {
        "index.metric": (params.index.metric, found.metric),
        "id_type": (params.id_type, found.id_type),
        "fields": (dict(params.fields), dict(found.fields)),
    }
    if params.dimension:
        wanted["dimension"] = (params.dimension, found.dimension)
    where, otherwise = f"in {folder}", "empty the folder"
    if folder.name.endswith(_INCOMING):
        where, otherwise = "of spec.model", "choose another model"
    for name, (want, have) in wanted.items():
        if want != have:
            raise InvalidInput(
                f"params.{name}",
                f"{shown(want)}, but the index {where} has {shown(have)}: change it, or {otherwise}",
            )


def _empty(params: Params, folder: Path) -> VectorIndex:
    if not params.dimension:
        raise InvalidInput(
            "params.dimension", "0, and there is no snapshot in spec.model: set the number of components"
        )
    settings = IndexSettings(
        params.dimension,
        params.index.metric,
        params.id_type,
        params.fields,
        params.index.grains,
        params.index.dims,
    )
    search = SearchSettings(params.index.nprobe, params.index.candidates)
    return VectorIndex.create(
        folder, settings, search=search, options=options(params), storage=_storage(params)
    )


def _from_generation(params: Params, path: Path, folder: Path, group: Group) -> VectorIndex:
    """Write the index of a generation to the rank's folder, and open it."""
    incoming = _emptied(folder.with_name(folder.name + _INCOMING))
    facts = generation.restore(path, incoming)
    (incoming / ORIGIN).write_text(json.dumps(facts))
    return _adopted(params, incoming, folder, group)


def _from_snapshot(params: Params, path: Path, folder: Path, group: Group) -> VectorIndex:
    """Copy a snapshot and open the copy."""
    own = path / shard_name(group)
    source = own if own.is_dir() else path
    if not source.is_dir() or not manifest_files(source):
        raise InvalidInput(
            "spec.model",
            f"{source} has no manifest of an index, and no shards of a checkpoint: give a folder that "
            "/index/snapshot has made, or a checkpoint of the engine aperon-index",
        )
    incoming = folder.with_name(folder.name + _INCOMING)
    copy_folder(source, incoming)
    return _adopted(params, incoming, folder, group, whole=source is not own)


def _adopted(
    params: Params, incoming: Path, folder: Path, group: Group, *, whole: bool = True
) -> VectorIndex:
    """Make an index that has arrived the rank's own. `whole`: it has the records of all ranks."""
    # Opening reads every file, so a damaged index never becomes the replica's.
    index = _opened(params, incoming)
    try:
        if group.world > 1 and whole:
            index.delete([one for one in index.ids() if owner(one, group.world) != group.rank])
            index.compact()
    finally:
        index.close()
    incoming.replace(folder)
    return _opened(params, folder)


def _facts_of(folder: Path) -> Mapping[str, object]:
    """Return the facts of the generation that an index was restored from."""
    try:
        found = json.loads((folder / ORIGIN).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder, and make them durable. A former target is replaced."""
    _emptied(target)
    for file in sorted(one for one in source.iterdir() if one.is_file()):
        with file.open("rb") as reader, (target / file.name).open("wb") as writer:
            shutil.copyfileobj(reader, writer, _PART)
            flush_to_disk(writer)
