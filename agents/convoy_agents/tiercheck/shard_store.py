"""The store of one job's shards in a node's memory: shards of its own ranks, copies of others', commits.

    buffers/<name>          the buffers that the ranks write their shards into (buffers.py)
    files/<id>            all other shards, whole: copies, what was fetched
    manifests/<id>        the record of a shard in such a file, or in the buffer that the record names
    records/, branches/   what was committed, where incarnations started
    state.json            watermarks, incarnation

All of it lies in the job's tmpfs: it outlives the agent, and goes with the node. Nothing is synced; every
text is written to another name first. A buffer that no record names is empty or being written, so a save that
breaks off leaves nothing.
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
"""Shards that are remembered as withdrawn; of more, the oldest stay with their hosts until a later generation
takes their place there.
"""
_FOLDERS = ("buffers", "files", "manifests", "records", "branches")


class ShardStore:
    """Blocking, and not to be used by two threads at once."""

    def __init__(self, folder: Path) -> None:
        """Read what an earlier agent left. OSError when the folder cannot be used."""
        self._folder = folder
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        self.buffers = Buffers(folder / "buffers")
        self.incoming = IncomingShards(folder / "files")
        self.records: dict[Generation, Record] = {}
        self.branches: dict[int, Branch] = {}
        self.marks: dict[Tier, Generation] = {}
        self.incarnation = 0
        """The latest incarnation this node has a part in."""
        self.seen = 0
        """The latest incarnation that has asked for an inventory: nothing is committed for earlier ones."""
        self.slot_token = ""
        """The newest slot token by which anything came here."""
        self.sealing: set[str] = set()
        """Buffers whose digests are being computed: nobody writes there."""
        self.withdrawn: list[str] = []
        """Shards of this node's own ranks that were given up in this incarnation."""
        self._shards: dict[str, ShardRecord] = {}
        """The shards that are here, whole, by the id of their manifest."""
        self._recover()

    # Inventory.

    @property
    def manifests(self) -> dict[str, Manifest]:
        """A snapshot of the manifests of all shards that are here, by id."""
        return {key: one.manifest for key, one in self._shards.items()}

    @property
    def inventory(self) -> Inventory:
        """A snapshot of what is known and held."""
        return Inventory(dict(self.records), dict(self.branches), self.manifests)

    @property
    def owners(self) -> set[str]:
        """Ranks, of this incarnation or of an earlier one, whose buffers hold a shard."""
        return {owner_of(name)[0] for name in self._used()}

    @property
    def unbuffered_bytes(self) -> int:
        """Bytes of all shards that lie in no buffer, those on their way included."""
        sizes = {key: one.manifest.size for key, one in self._shards.items() if not one.buffer}
        sizes |= {one.manifest.id: one.manifest.size for one in self.incoming}
        return sum(sizes.values())

    def unbuffered_bytes_with(self, manifest: Manifest) -> int:
        """Return `room` as it is once this shard is on its way."""
        known = manifest.id in self._shards or manifest.id in self.incoming
        return self.unbuffered_bytes + (0 if known else manifest.size)

    @property
    def known(self) -> set[str]:
        """The shards that are here, or on their way."""
        return {*self._shards, *(one.manifest.id for one in self.incoming)}

    @property
    def given_up(self) -> set[str]:
        """Shards that were withdrawn: no watermark will come to stand on them."""
        return {key for key, one in self._shards.items() if one.given_up}

    def holds(self, key: str) -> bool:
        """Return whether a shard is here, whole."""
        return key in self._shards

    def manifest(self, key: str) -> Manifest | None:
        """Return a shard's manifest; None when the shard is not here."""
        one = self._shards.get(key)
        return one.manifest if one is not None else None

    def metadata(self, key: str) -> ShardMetadata | None:
        """Return the report that came with a shard of this node's own ranks; None for any other shard."""
        return self._shards[key].metadata

    def extended(self, key: str) -> bool:
        """Return whether a shard that is here, or on its way, extends this one."""
        manifests = (one.manifest for shards in (self._shards.values(), self.incoming) for one in shards)
        return any(one.extends == key for one in manifests)

    # Shards of this node's own ranks.

    def reserve(
        self, owner: str, count: int, size: int, owners: Collection[str] = (), kind: str = BASES
    ) -> list[str]:
        """Give a rank so many buffers of so many bytes. ShareExhausted when they do not fit; nothing is changed then,
        except that unused buffers are freed.

        `owners`: all ranks that use buffers now. A buffer that another rank left, and that holds nothing
        needed, is removed.
        """
        names = [f"{owner}-{kind}{number}" for number in range(count)]
        self.buffers.remove_unused({owner, *owners}, self.sealing.union(self._used()))
        self.buffers.allocate(names, size)
        return names

    def writable(self, owner: str, kind: str = BASES) -> list[str]:
        """Return a rank's buffers of a kind that hold nothing needed."""
        used = self.sealing.union(self._used())
        return [name for name in self.buffers.names(owner) if name not in used and owner_of(name)[1] == kind]

    def seal(
        self,
        manifest: Manifest,
        buffer: str,
        metadata: ShardMetadata = ShardMetadata(1, "", ""),  # noqa: B008 - immutable
    ) -> None:
        """Keep a shard that a rank has written into a buffer: from now on nobody writes there."""
        if buffer in self._used():
            raise ValueError(f"buffer {buffer} holds another shard")
        self._keep(ShardRecord(manifest, buffer, metadata))

    def sealed(self, shards: Collection[str], incarnation: int) -> dict[Generation, dict[str, str]]:
        """Return the generations of an incarnation for which these shards were sealed here: ids by shard."""
        found: dict[Generation, dict[str, str]] = {}
        for key, record in self._shards.items():
            one = record.manifest
            if record.buffer and one.shard in shards and one.generation.incarnation == incarnation:
                found.setdefault(one.generation, {})[one.shard] = key
        return found

    # Shards that will not be committed.

    def give_up(self, keys: Iterable[str], withdraw: bool = True) -> None:
        """Let shards of this node's own ranks go with the next `collect`. `withdraw`: notify their hosts."""
        mine = [key for key in keys if key in self._shards and self._shards[key].buffer]
        if withdraw:
            self.withdrawn = [*dict.fromkeys([*self.withdrawn, *mine])][-MAX_WITHDRAWN:]
            with contextlib.suppress(OSError):  # without room for it the copies wait for a later generation
                self._save_state()
        for key in mine:
            self._shards[key].given_up = True

    def absent(self) -> list[str]:
        """Return the withdrawn shards that are gone: nothing that is kept here extends them."""
        return [key for key in self.withdrawn if key not in self._shards]

    def copies_from(self, node: str) -> set[str]:
        """Return the shards, whole or on their way, that a node counts on as its copies."""
        whole = {key for key, one in self._shards.items() if one.copy_of == node}
        return whole | {one.manifest.id for one in self.incoming if one.copy_of == node}

    def release_copies(self, keys: Iterable[str]) -> None:
        """Let copies that nobody counts on any more go with the next `collect`, unless a watermark stands on
        them or another shard extends them.
        """
        for key in keys:
            if key in self._shards:
                self._shards[key].given_up = True
            elif not self.extended(key):
                self.incoming.drop(key)

    # Shards that come from elsewhere, chunk by chunk.

    def expect(self, manifest: Manifest, copy_of: str = "") -> list[int]:
        """Make room for a shard that is about to be sent. Return the chunks that no shard here has, by index.

        `copy_of`: the node that counts on the shard as its copy. ShareExhausted when it does not fit.
        """
        known = self._shards.get(manifest.id)
        if known is None:
            return self.incoming.expect(manifest, copy_of, self._local_reader)
        if copy_of and not known.buffer:
            known.copy_of = known.copy_of or copy_of
        return []

    def admit(self, key: str) -> None:
        """Keep a shard whose chunks have all been put. Damaged when one is missing."""
        if key in self._shards:
            return
        incoming = self.incoming.finish(key, self._file(key))
        self._keep(ShardRecord(incoming.manifest, copy_of=incoming.copy_of))

    # All shards.

    def path(self, key: str) -> Path:
        """Return the file that begins with a shard's bytes. KeyError when the shard is not here."""
        buffer = self._shards[key].buffer
        return self.buffers.path(buffer) if buffer else self._file(key)

    def read(self, key: str, index: int) -> bytes:
        """Return a chunk's bytes. Damaged when they are not here or not as they were."""
        manifest = self.manifest(key)
        if manifest is None or not 0 <= index < len(manifest.chunks):
            raise Damaged(f"shard {key} is not here")
        chunk = manifest.chunks[index]
        with self.path(key).open("rb") as file:
            data = os.pread(file.fileno(), chunk.length, sum(one.length for one in manifest.chunks[:index]))
        if len(data) != chunk.length or digest.digest(data) != chunk.digest:
            raise Damaged(f"chunk {chunk.digest} is damaged")
        return data

    def drop(self, key: str) -> None:
        """Remove a shard."""
        if (one := self._shards.pop(key, None)) is None:
            return
        (self._folder / "manifests" / key).unlink(missing_ok=True)
        if not one.buffer:
            self._file(key).unlink(missing_ok=True)

    def collect(self, pinned: Collection[str] = ()) -> retention.Garbage:
        """Drop what is not needed any more, and return it. `pinned`: shards that are being read."""
        garbage = retention.memory_garbage(self.inventory, self.marks, self.incarnation, self.given_up)
        floor = self.marks.get(Tier.PEER)
        for incoming in self.incoming:
            key, generation = incoming.manifest.id, incoming.manifest.generation
            old = generation.incarnation < self.incarnation or (floor is not None and generation < floor)
            if old and key not in pinned and not self.extended(key):
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
        """Write down that a generation was committed."""
        write_atomic(self._folder / "records" / record.generation.name, records.seal(record.text))
        self.records[record.generation] = record

    def add_branch(self, branch: Branch) -> None:
        """Write down that an incarnation begins, or where it started."""
        write_atomic(self._folder / "branches" / str(branch.incarnation), records.seal(branch.text))
        self.branches[branch.incarnation] = branch

    def start_incarnation(self, incarnation: int, marks: dict[Tier, Generation]) -> None:
        """Let an incarnation go on from these watermarks."""
        if incarnation != self.incarnation:
            self.withdrawn = []
        self.incarnation, self.marks = incarnation, dict(marks)
        self.seen = max(self.seen, incarnation)
        self._save_state()

    def record_seen(self, incarnation: int) -> None:
        """Note that an incarnation has asked for an inventory."""
        if incarnation > self.seen:
            self.seen = incarnation
            self._save_state()

    def set_slot_token(self, slot_token: str) -> None:
        """Note the slot token by which the shards lie here."""
        self.slot_token = slot_token
        self._save_state()

    def advance(self, tier: Tier, generation: Generation) -> None:
        """Move a tier's watermark: the generation is whole there."""
        self.marks = retention.advance(self.marks, tier, generation)
        self._save_state()

    # Inside.

    def _file(self, key: str) -> Path:
        return self._folder / "files" / key

    def _used(self) -> set[str]:
        """Return the buffers that hold a shard."""
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
                record = records.record(records.unseal(data))
                if record.generation.name == path.name:
                    self.records[record.generation] = record
        for path, data in self._texts("branches"):
            with contextlib.suppress(MalformedError):
                branch = records.branch(records.unseal(data))
                if str(branch.incarnation) == path.name:
                    self.branches[branch.incarnation] = branch
        # A shard on its way to an earlier agent is sent again.
        for path in (self._folder / "files").iterdir():
            if path.name not in self._shards:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(records.unseal((self._folder / "state.json").read_bytes()))
            self.incarnation, self.seen = int(state["incarnation"]), int(state["seen"])
            self.marks = {Tier(tier): Generation(*pair) for tier, pair in state["marks"].items()}
            # An agent that ended before it had given something up goes on with it.
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
