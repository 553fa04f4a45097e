"""The store of one job's shards in a node's memory: shards of the node's own ranks, copies for other nodes,
and commits.

    buffers/<name>        the buffers into which the ranks write their shards (buffers.py)
    files/<id>            complete shards that are in no buffer: copies and fetched shards
    manifests/<id>        the record of a shard in such a file, or in the buffer that the record names
    records/, branches/   the committed generations, and from which generation each incarnation started
    state.json            watermarks, incarnation, withdrawn shards and slot token

Everything is in the job's tmpfs, so it survives the agent but not the node. Each text is written under a
temporary name and renamed, without a sync. A buffer without a record is empty or being written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from convoy_agents.tiercheck import digest, shard_record
from convoy_agents.tiercheck.buffers import BASES, Buffers, owner_of, size_of
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.incoming_shards import IncomingShards, ReadLocal
from convoy_agents.tiercheck.memory import write_atomic
from convoy_agents.tiercheck.shard_record import ShardMetadata, ShardRecord
from convoy_controllers.checkpoint import records, retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Inventory, MalformedError, Manifest, Record

MAX_WITHDRAWN = 128
"""Maximum number of withdrawn shards to list. Other nodes drop their copies of listed shards. If the list
is full, its oldest shards are removed; their copies stay until a later generation replaces them.
"""
_FOLDERS = ("buffers", "files", "manifests", "records", "branches")


class ShardStore:
    """The shards of one job on this node. All methods block and are not thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Read the files that an earlier agent left. Raises OSError if the folder cannot be used."""
        self._folder = folder
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        self.buffers = Buffers(folder / "buffers")
        self.incoming = IncomingShards(folder / "files")
        self.records: dict[Generation, Record] = {}
        self.branches: dict[int, Branch] = {}
        self.marks: dict[Tier, Generation] = {}
        self.incarnation = 0
        """The latest incarnation that has started on this node."""
        self.seen = 0
        """The latest incarnation of the job that is known here. Earlier ones cannot commit here any more."""
        self.slot_token = ""
        """The newest slot token that was stored for the job's shards on this node."""
        self.sealing: set[str] = set()
        """Names of the buffers whose digests are being computed. No rank may write to these buffers."""
        self.withdrawn: list[str] = []
        """Ids of this node's own shards that were given up in this incarnation and whose copies must be
        dropped.
        """
        self._shards: dict[str, ShardRecord] = {}
        """Complete shards by manifest id."""
        self._recover()

    # Inventory.

    @property
    def manifests(self) -> dict[str, Manifest]:
        """A snapshot of the manifests of all complete shards, by id."""
        return {key: one.manifest for key, one in self._shards.items()}

    @property
    def inventory(self) -> Inventory:
        """A snapshot of all records, branches and manifests."""
        return Inventory(dict(self.records), dict(self.branches), self.manifests)

    @property
    def owners(self) -> set[str]:
        """The ranks, of any incarnation, whose buffers hold a shard."""
        return {owner_of(name)[0] for name in self._used_buffers()}

    @property
    def unbuffered_bytes(self) -> int:
        """Total bytes of the shards that are in no buffer, including shards in transfer."""
        sizes = {key: one.manifest.size for key, one in self._shards.items() if not one.buffer}
        sizes |= {one.manifest.id: one.manifest.size for one in self.incoming}
        return sum(sizes.values())

    def unbuffered_bytes_with(self, manifest: Manifest) -> int:
        """Return the value that `unbuffered_bytes` would have if this shard were also in transfer."""
        known = manifest.id in self._shards or manifest.id in self.incoming
        return self.unbuffered_bytes + (0 if known else manifest.size)

    @property
    def known(self) -> set[str]:
        """Ids of the shards that are complete or in transfer."""
        return {*self._shards, *(one.manifest.id for one in self.incoming)}

    @property
    def given_up(self) -> set[str]:
        """Ids of the shards that were given up, because their generations will not be committed."""
        return {key for key, one in self._shards.items() if one.given_up}

    def holds(self, key: str) -> bool:
        """Return True if a shard is complete on this node."""
        return key in self._shards

    def manifest(self, key: str) -> Manifest | None:
        """Return a shard's manifest; None if the shard is not complete on this node."""
        one = self._shards.get(key)
        return one.manifest if one is not None else None

    def metadata(self, key: str) -> ShardMetadata | None:
        """Return the facts that a rank of this node reported with its shard; None for a copy or a fetched
        shard.
        """
        return self._shards[key].metadata

    def is_extended(self, key: str) -> bool:
        """Return True if another shard, complete or in transfer, extends this one."""
        manifests = (one.manifest for shards in (self._shards.values(), self.incoming) for one in shards)
        return any(one.extends == key for one in manifests)

    # Shards of this node's own ranks.

    def reserve(
        self, owner: str, count: int, size: int, owners: Collection[str] = (), kind: str = BASES
    ) -> list[str]:
        """Allocate `count` buffers of `size` bytes for a rank. Return their names. `owners`: all ranks that
        use buffers; unneeded buffers of other ranks are removed first.

        Raises ShareExhausted, and allocates nothing, if the free memory is too small.
        """
        names = [f"{owner}-{kind}{number}" for number in range(count)]
        self.buffers.remove_unused({owner, *owners}, self.sealing.union(self._used_buffers()))
        self.buffers.allocate(names, size)
        return names

    def writable(self, owner: str, kind: str = BASES) -> list[str]:
        """Return the rank's buffers of this kind that hold no shard and are not being sealed. The rank may
        write to them.
        """
        used = self.sealing.union(self._used_buffers())
        return [name for name in self.buffers.names(owner) if name not in used and owner_of(name)[1] == kind]

    def seal(
        self,
        manifest: Manifest,
        buffer: str,
        metadata: ShardMetadata = ShardMetadata(1, "", ""),  # noqa: B008 - immutable
    ) -> None:
        """Record that a buffer holds a complete shard. The rank must not write to the buffer any more."""
        if buffer in self._used_buffers():
            raise ValueError(f"buffer {buffer} holds another shard")
        self._keep(ShardRecord(manifest, buffer, metadata))

    def sealed_generations(
        self, shards: Collection[str], incarnation: int
    ) -> dict[Generation, dict[str, str]]:
        """Return the shards with a name in `shards` that ranks of this node have sealed in this
        incarnation. The result has, for each generation, the shard ids by shard name.
        """
        found: dict[Generation, dict[str, str]] = {}
        for key, record in self._shards.items():
            one = record.manifest
            if record.buffer and one.shard in shards and one.generation.incarnation == incarnation:
                found.setdefault(one.generation, {})[one.shard] = key
        return found

    # Shards that will not be committed.

    def give_up(self, keys: Iterable[str], withdraw: bool = True) -> None:
        """Give up shards of this node's ranks. The next `collect` drops them, unless a committed generation
        or another kept shard needs them. `withdraw`: True to have the other nodes drop their copies too.
        """
        mine = [key for key in keys if key in self._shards and self._shards[key].buffer]
        if withdraw:
            self.withdrawn = [*dict.fromkeys([*self.withdrawn, *mine])][-MAX_WITHDRAWN:]
            # If the list cannot be saved, the copies may stay until a later generation replaces them.
            with contextlib.suppress(OSError):
                self._save_state()
        for key in mine:
            self._shards[key].given_up = True

    def dropped_withdrawn(self) -> list[str]:
        """Return the ids of the withdrawn shards that this node has dropped. A withdrawn shard that another
        shard extends is not dropped yet.
        """
        return [key for key in self.withdrawn if key not in self._shards]

    def copies_from(self, node: str) -> set[str]:
        """Return the ids of the copies that a node has sent here, complete or in transfer."""
        whole = {key for key, one in self._shards.items() if one.copy_of == node}
        return whole | {one.manifest.id for one in self.incoming if one.copy_of == node}

    def release_copies(self, keys: Iterable[str]) -> None:
        """Give up copies that the sending node has withdrawn. The next `collect` drops them, unless a
        committed generation or another kept shard needs them.
        """
        for key in keys:
            if key in self._shards:
                self._shards[key].given_up = True
            elif not self.is_extended(key):
                self.incoming.drop(key)

    # Shards in transfer to this node.

    def expect(self, manifest: Manifest, copy_of: str = "") -> list[int]:
        """Allocate memory for a shard that will be sent. Return the indexes of the chunks that no shard
        here has.

        `copy_of`: the node that sends the shard to have a copy here; empty for a shard that this node
        fetches. Raises ShareExhausted if the free memory is too small.
        """
        known = self._shards.get(manifest.id)
        if known is None:
            return self.incoming.expect(manifest, copy_of, self._local_reader)
        if copy_of and not known.buffer:
            known.copy_of = known.copy_of or copy_of
        return []

    def admit(self, key: str) -> None:
        """Record a shard in transfer as complete. Raises Damaged if a chunk is missing."""
        if key in self._shards:
            return
        incoming = self.incoming.finish(key, self._file(key))
        self._keep(ShardRecord(incoming.manifest, copy_of=incoming.copy_of))

    # All shards.

    def path(self, key: str) -> Path:
        """Return the path of the file whose first bytes are the shard. Raises KeyError if the shard is not
        complete here.
        """
        buffer = self._shards[key].buffer
        return self.buffers.path(buffer) if buffer else self._file(key)

    def read(self, key: str, index: int) -> bytes:
        """Return the bytes of a chunk. Raises Damaged if the chunk is missing or damaged."""
        manifest = self.manifest(key)
        if manifest is None or not 0 <= index < len(manifest.chunks):
            raise Damaged(f"shard {key} is not on this node")
        chunk = manifest.chunks[index]
        with self.path(key).open("rb") as file:
            data = os.pread(file.fileno(), chunk.length, sum(one.length for one in manifest.chunks[:index]))
        if len(data) != chunk.length or digest.digest(data) != chunk.digest:
            raise Damaged(f"chunk {chunk.digest} is damaged")
        return data

    def drop(self, key: str) -> None:
        """Remove a shard and its record. A buffer that held the shard stays."""
        if (one := self._shards.pop(key, None)) is None:
            return
        (self._folder / "manifests" / key).unlink(missing_ok=True)
        if not one.buffer:
            self._file(key).unlink(missing_ok=True)

    def collect(self, pinned: Collection[str] = ()) -> retention.Garbage:
        """Drop all shards, records and branches that no restore can need, except the `pinned` shard ids.
        Return what was dropped.
        """
        garbage = retention.memory_garbage(self.inventory, self.marks, self.incarnation, self.given_up)
        floor = self.marks.get(Tier.PEER)
        for incoming in self.incoming:
            key, generation = incoming.manifest.id, incoming.manifest.generation
            old = generation.incarnation < self.incarnation or (floor is not None and generation < floor)
            if old and key not in pinned and not self.is_extended(key):
                self.incoming.drop(key)
        for generation in garbage.records:
            (self._folder / "records" / generation.name).unlink(missing_ok=True)
            self.records.pop(generation, None)
        for number in garbage.branches:
            (self._folder / "branches" / str(number)).unlink(missing_ok=True)
            self.branches.pop(number, None)
        for key in garbage.manifests.difference(pinned):
            self.drop(key)
        return garbage

    # Commits and incarnations.

    def add_record(self, record: Record) -> None:
        """Write the record of a committed generation."""
        write_atomic(self._folder / "records" / record.generation.name, records.seal(record.text))
        self.records[record.generation] = record

    def add_branch(self, branch: Branch) -> None:
        """Write from which generation an incarnation starts, or that this is not decided yet."""
        write_atomic(self._folder / "branches" / str(branch.incarnation), records.seal(branch.text))
        self.branches[branch.incarnation] = branch

    def start_incarnation(self, incarnation: int, marks: dict[Tier, Generation]) -> None:
        """Start an incarnation with the watermarks `marks`."""
        if incarnation != self.incarnation:
            self.withdrawn = []
        self.incarnation, self.marks = incarnation, dict(marks)
        self.seen = max(self.seen, incarnation)
        self._save_state()

    def record_seen(self, incarnation: int) -> None:
        """Record that this incarnation of the job exists."""
        if incarnation > self.seen:
            self.seen = incarnation
            self._save_state()

    def set_slot_token(self, slot_token: str) -> None:
        """Store the slot token of the shards on this node."""
        self.slot_token = slot_token
        self._save_state()

    def advance(self, tier: Tier, generation: Generation) -> None:
        """Advance the watermark of a tier to a generation that is complete at this tier."""
        self.marks = retention.advance(self.marks, tier, generation)
        self._save_state()

    # Helpers.

    def _file(self, key: str) -> Path:
        return self._folder / "files" / key

    def _used_buffers(self) -> set[str]:
        """Return the names of the buffers that hold a shard."""
        return {one.buffer for one in self._shards.values() if one.buffer}

    def _local_reader(self) -> ReadLocal:
        known = {
            chunk.digest: (key, index)
            for key, one in self._shards.items()
            for index, chunk in enumerate(one.manifest.chunks)
        }

        def read(name: str) -> bytes | None:
            if name not in known:
                return None
            try:
                return self.read(*known[name])
            except Damaged:
                return None

        return read

    def _keep(self, record: ShardRecord) -> None:
        key = record.manifest.id
        write_atomic(self._folder / "manifests" / key, records.seal(record.text))
        if (known := self._shards.get(key)) is not None:
            record.copy_of, record.given_up = record.copy_of or known.copy_of, known.given_up
        self._shards[key] = record

    def _recover(self) -> None:
        for path, data in self._texts("manifests"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                one = shard_record.parse(records.unseal(data))
                key = one.manifest.id
                there = self.buffers.path(one.buffer) if one.buffer else self._file(key)
                if key == path.name and size_of(there) >= one.manifest.size:
                    self._shards[key] = one
                    continue
            path.unlink(missing_ok=True)
        for path, data in self._texts("records"):
            with contextlib.suppress(MalformedError):
                record = records.parse_record(records.unseal(data))
                if record.generation.name == path.name:
                    self.records[record.generation] = record
        for path, data in self._texts("branches"):
            with contextlib.suppress(MalformedError):
                branch = records.parse_branch(records.unseal(data))
                if str(branch.incarnation) == path.name:
                    self.branches[branch.incarnation] = branch
        # An interrupted transfer is repeated from its start, so remove its file.
        for path in (self._folder / "files").iterdir():
            if path.name not in self._shards:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(records.unseal((self._folder / "state.json").read_bytes()))
            self.incarnation, self.seen = int(state["incarnation"]), int(state["seen"])
            self.marks = {Tier(tier): Generation(*pair) for tier, pair in state["marks"].items()}
            # A withdrawn shard that is still here was not dropped by the earlier agent. Keep it and its
            # copies, because no stored record says that it was given up.
            self.slot_token = str(state.get("slotToken", ""))
            self.withdrawn = [key for key in state.get("withdrawn", ()) if key not in self._shards]

    def _texts(self, kind: str) -> Iterator[tuple[Path, bytes]]:
        for path in sorted((self._folder / kind).iterdir()):
            if path.name.startswith("."):
                path.unlink(missing_ok=True)
            else:
                yield path, path.read_bytes()

    def _save_state(self) -> None:
        state: dict[str, Any] = {
            "incarnation": self.incarnation,
            "seen": self.seen,
            "marks": {tier.value: list(generation) for tier, generation in self.marks.items()},
            "withdrawn": self.withdrawn,
            "slotToken": self.slot_token,
        }
        write_atomic(self._folder / "state.json", records.seal(json.dumps(state).encode()))
