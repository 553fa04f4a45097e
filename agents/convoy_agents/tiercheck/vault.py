"""What a node's memory holds of one job: shards of its own ranks, copies of others', what is known of them.

    slots/<name>          shards where the ranks write them: a rank has at least two for bases, and some for
                          the segments of its journal
    files/<id>            all other shards, whole: copies, what was fetched
    manifests/<id>        what is in such a file, or in the slot that it names
    records/, branches/   what was committed, where incarnations began
    state.json            watermarks, incarnation

All of it lies in the job's tmpfs: it outlives the agent, and goes with the node. Nothing is synced, all is
written to another name first. A slot that no manifest names is empty or being written; so a save that breaks
off leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from convoy_agents.tiercheck import digest, memory
from convoy_controllers.checkpoint import records, retention
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, MalformedError, Manifest, Record

MAX_EXPECTED = 64
"""Shards on their way here at once; the oldest makes room."""
Damaged = digest.Damaged
MAX_WITHDRAWN = 128
"""Shards that are remembered as withdrawn; of more, the oldest stay with their hosts until a later generation
takes their place there.
"""
BASES, SEGMENTS = "", "j"
"""Kinds of slots, as their names tell."""
_FOLDERS = ("slots", "files", "manifests", "records", "branches")


class Facts(NamedTuple):
    """What the ranks say of a generation beside its shards; all must say the same."""

    world: int
    torch: str
    plan: str
    """Digest of who writes what."""
    last: bool = False
    """Whether the job ends with this state."""


@dataclass(slots=True)
class Coming:
    """A shard that is being sent here."""

    manifest: Manifest
    missing: set[int]
    """Chunks that are not there yet, by index."""
    offsets: list[int] = field(default_factory=list)
    giver: str = ""
    """The node that counts on it as its copy; empty for what is fetched."""


class Vault:
    """Blocking, and not to be used by two threads at once."""

    def __init__(self, folder: Path) -> None:
        """Reads what an earlier agent left. OSError when the folder cannot be used."""
        self._folder = folder
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        self.records: dict[Generation, Record] = {}
        self.branches: dict[int, Branch] = {}
        self.manifests: dict[str, Manifest] = {}
        self.marks: dict[Tier, Generation] = {}
        self.incarnation = 0
        """The latest this node has a part in."""
        self.seen = 0
        """The latest that has asked what is here: earlier ones get nothing committed any more."""
        self.warrant = ""
        """The newest by which anything came here."""
        self.sealing: set[str] = set()
        """Slots of which digests are being taken: nobody writes there."""
        self.given_up: set[str] = set()
        """Shards that were withdrawn: no watermark will come to stand on them."""
        self.withdrawn: list[str] = []
        """Shards of this node's own ranks that were given up in this incarnation."""
        self.facts: dict[str, Facts] = {}
        """By manifest of this node's own ranks: what was said with it."""
        self._homes: dict[str, str] = {}
        """By manifest, the slot its bytes lie in."""
        self._givers: dict[str, str] = {}
        """By manifest, the node that counts on it as its copy."""
        self._coming: dict[str, Coming] = {}
        self._recover()

    @property
    def owners(self) -> set[str]:
        """Ranks, of this incarnation or of an earlier one, in whose slots something lies."""
        return {owner_of(name)[0] for name in self._homes.values()}

    @property
    def room(self) -> int:
        """Bytes of all shards that lie in no slot, those on their way included."""
        sizes = {key: one.size for key, one in self.manifests.items() if key not in self._homes}
        sizes |= {key: one.manifest.size for key, one in self._coming.items()}
        return sum(sizes.values())

    def room_with(self, manifest: Manifest) -> int:
        """The same once this one is on its way."""
        known = manifest.id in self.manifests or manifest.id in self._coming
        return self.room + (0 if known else manifest.size)

    @property
    def known(self) -> set[str]:
        """The shards that are here, or on their way."""
        return {*self.manifests, *self._coming}

    @property
    def inventory(self) -> Inventory:
        """A picture of what is known and held."""
        return Inventory(dict(self.records), dict(self.branches), dict(self.manifests))

    # Slots.

    def slots(self, owner: str) -> list[str]:
        """Names of a rank's slots."""
        return sorted(path.name for path in (self._folder / "slots").glob(f"{owner}-*"))

    def reserve(
        self, owner: str, count: int, size: int, owners: Collection[str] = (), kind: str = BASES
    ) -> list[str]:
        """So many slots of so many bytes. NoRoom, and nothing is changed but that slots are freed, when they
        do not fit.

        `owners`: all who use slots now; what others have left, and nobody needs, is given up.
        """
        names = [f"{owner}-{kind}{number}" for number in range(count)]
        used = self.sealing.union(self._homes.values())
        for path in (self._folder / "slots").iterdir():
            if owner_of(path.name)[0] not in {owner, *owners} and path.name not in used:
                path.unlink()
        missing = sum(max(0, size - _size(self.slot(name))) for name in names)
        if missing > (left := memory.left(self._folder)):
            raise memory.NoRoom(missing, left)
        for name in names:
            memory.allocate(self.slot(name), size)
        return names

    def slot(self, name: str) -> Path:
        """The file of a slot."""
        return self._folder / "slots" / name

    def written(self, name: str) -> int:
        """Bytes that may lie in a slot. What a rank makes it longer by has no pages and does not count."""
        found = self.slot(name).stat()
        return min(found.st_size, found.st_blocks * 512)

    def writable(self, owner: str, kind: str = BASES) -> list[str]:
        """A rank's slots of a kind that nothing needed lies in."""
        used = self.sealing.union(self._homes.values())
        return [name for name in self.slots(owner) if name not in used and owner_of(name)[1] == kind]

    def seal(self, manifest: Manifest, slot: str, facts: Facts = Facts(1, "", "")) -> None:  # noqa: B008
        """A rank has written a shard into a slot: from now on nobody writes there."""
        if slot in self._homes.values():
            raise ValueError(f"slot {slot} holds another shard")
        self._keep(manifest, slot, facts)

    def sealed(self, shards: Collection[str], incarnation: int) -> dict[Generation, dict[str, str]]:
        """The generations of an incarnation that these shards were sealed for here: ids by shard."""
        found: dict[Generation, dict[str, str]] = {}
        for key in self._homes:
            one = self.manifests[key]
            if one.shard in shards and one.generation.incarnation == incarnation:
                found.setdefault(one.generation, {})[one.shard] = key
        return found

    def extended(self, key: str) -> bool:
        """Whether a shard that is here, or on its way, extends this one."""
        coming = (one.manifest for one in self._coming.values())
        return any(one.extends == key for one in (*self.manifests.values(), *coming))

    # Shards that will not be committed.

    def give_up(self, keys: Iterable[str], withdraw: bool = True) -> None:
        """Shards of this node's own ranks go with the next `collect`; `withdraw`: their hosts are told."""
        mine = [key for key in keys if key in self._homes]
        if withdraw:
            self.withdrawn = [*dict.fromkeys([*self.withdrawn, *mine])][-MAX_WITHDRAWN:]
            with contextlib.suppress(OSError):  # without room for it the copies wait for a later generation
                self._save_state()
        self.given_up.update(mine)

    def absent(self) -> list[str]:
        """What was withdrawn and is gone: nothing that is kept here extends it."""
        return [key for key in self.withdrawn if key not in self.manifests]

    def brought(self, node: str) -> set[str]:
        """The shards, whole or on their way, that a node counts on as its copies."""
        whole = {key for key, giver in self._givers.items() if giver == node}
        return whole | {key for key, coming in self._coming.items() if coming.giver == node}

    def give_back(self, keys: Iterable[str]) -> None:
        """Nobody counts on these copies any more: they go with the next `collect`, unless a watermark stands
        on them or something extends them.
        """
        for key in keys:
            if key in self.manifests:
                self.given_up.add(key)
            elif not self.extended(key):
                self.give_up_coming(key)

    # Shards that come from elsewhere, chunk by chunk.

    def expect(self, manifest: Manifest, giver: str = "") -> list[int]:
        """A shard is about to be sent. The chunks that are wanted, by index: no other shard here has them.

        `giver`: the node that counts on it as its copy. NoRoom when it does not fit.
        """
        key = manifest.id
        if key in self.manifests:
            if giver and key not in self._homes:
                self._givers.setdefault(key, giver)
            return []
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = self._begin(manifest)
            while len(self._coming) > MAX_EXPECTED:
                self.give_up_coming(next(iter(self._coming)))
        coming.giver = coming.giver or giver
        return sorted(coming.missing)

    def expected(self, key: str, index: int) -> Chunk:
        """A chunk of a shard that is expected. Damaged when it is of none."""
        coming = self._coming.get(key)
        if coming is None or not 0 <= index < len(coming.manifest.chunks):
            raise Damaged(f"chunk {index} of {key}: it is not expected")
        return coming.manifest.chunks[index]

    def put(self, key: str, index: int, data: digest.Buffer) -> None:
        """One chunk of a shard that is expected. Damaged when it is not what the manifest says."""
        chunk, coming = self.expected(key, index), self._coming[key]
        if len(data) != chunk.length or digest.digest(data) != chunk.digest:
            raise Damaged(f"chunk {chunk.digest} is damaged")
        with self._partial(key).open("r+b") as file:
            os.pwrite(file.fileno(), data, coming.offsets[index])
        coming.missing.discard(index)

    def admit(self, key: str) -> None:
        """All of its chunks have been put. Damaged when one is missing."""
        if key in self.manifests:
            return
        coming = self._coming.get(key)
        if coming is None or coming.missing:
            raise Damaged(f"shard {key} is not whole")
        del self._coming[key]
        self._partial(key).replace(self._file(key))
        self._keep(coming.manifest, giver=coming.giver)

    def give_up_coming(self, key: str) -> None:
        """A shard will not come after all."""
        if self._coming.pop(key, None) is not None:
            self._partial(key).unlink(missing_ok=True)

    # All shards.

    def path(self, key: str) -> Path:
        """The file that a shard's bytes lie in, from its start. KeyError when it is not here."""
        if key not in self.manifests:
            raise KeyError(key)
        return self.slot(self._homes[key]) if key in self._homes else self._file(key)

    def read(self, key: str, index: int) -> bytes:
        """A chunk's bytes. Damaged when they are not here or not as they were."""
        manifest = self.manifests.get(key)
        if manifest is None or not 0 <= index < len(manifest.chunks):
            raise Damaged(f"shard {key} is not here")
        chunk = manifest.chunks[index]
        with self.path(key).open("rb") as file:
            data = os.pread(file.fileno(), chunk.length, sum(one.length for one in manifest.chunks[:index]))
        if len(data) != chunk.length or digest.digest(data) != chunk.digest:
            raise Damaged(f"chunk {chunk.digest} is damaged")
        return data

    def drop(self, key: str) -> None:
        """Forgets a shard."""
        if self.manifests.pop(key, None) is None:
            return
        (self._folder / "manifests" / key).unlink(missing_ok=True)
        if self._homes.pop(key, None) is None:
            self._file(key).unlink(missing_ok=True)
        self.given_up.discard(key)
        self.facts.pop(key, None)
        self._givers.pop(key, None)

    # What is known.

    def record(self, record: Record) -> None:
        """A generation was committed."""
        write_atomic(self._folder / "records" / record.generation.name, records.seal(record.text))
        self.records[record.generation] = record

    def branch(self, branch: Branch) -> None:
        """An incarnation begins, or says where it began."""
        write_atomic(self._folder / "branches" / str(branch.incarnation), records.seal(branch.text))
        self.branches[branch.incarnation] = branch

    def begin(self, incarnation: int, marks: dict[Tier, Generation]) -> None:
        """An incarnation goes on from where these watermarks are."""
        if incarnation != self.incarnation:
            self.withdrawn = []
        self.incarnation, self.marks = incarnation, dict(marks)
        self.seen = max(self.seen, incarnation)
        self._save_state()

    def see(self, incarnation: int) -> None:
        """An incarnation asks what is here."""
        if incarnation > self.seen:
            self.seen = incarnation
            self._save_state()

    def warranted(self, warrant: str) -> None:
        """What is here lies here by this warrant."""
        self.warrant = warrant
        self._save_state()

    def advance(self, tier: Tier, generation: Generation) -> None:
        """A generation is whole at a tier."""
        self.marks = retention.advance(self.marks, tier, generation)
        self._save_state()

    def collect(self, pinned: Collection[str] = ()) -> retention.Doomed:
        """Drops what is not needed any more; what that was. `pinned`: shards that are being read."""
        doomed = retention.obsolete(self.inventory, self.marks, self.incarnation, self.given_up)
        floor = self.marks.get(Tier.PEER)
        for key, coming in list(self._coming.items()):
            generation = coming.manifest.generation
            old = generation.incarnation < self.incarnation or (floor is not None and generation < floor)
            if old and key not in pinned and not self.extended(key):
                self.give_up_coming(key)
        for generation in doomed.records:
            (self._folder / "records" / generation.name).unlink(missing_ok=True)
            self.records.pop(generation, None)
        for number in doomed.branches:
            (self._folder / "branches" / str(number)).unlink(missing_ok=True)
            self.branches.pop(number, None)
        for key in doomed.manifests.difference(pinned):
            self.drop(key)
        return doomed

    # Inside.

    def _file(self, key: str) -> Path:
        return self._folder / "files" / key

    def _partial(self, key: str) -> Path:
        return self._folder / "files" / f".{key}"

    def _begin(self, manifest: Manifest) -> Coming:
        memory.allocate(self._partial(manifest.id), manifest.size)
        offsets, at = [], 0
        for chunk in manifest.chunks:
            offsets.append(at)
            at += chunk.length
        coming = Coming(manifest, set(range(len(manifest.chunks))), offsets)
        known = {
            chunk.digest: (key, index)
            for key, one in self.manifests.items()
            for index, chunk in enumerate(one.chunks)
        }
        with self._partial(manifest.id).open("r+b") as file:
            for index, chunk in enumerate(manifest.chunks):
                if chunk.digest in known:
                    with contextlib.suppress(Damaged):
                        os.pwrite(file.fileno(), self.read(*known[chunk.digest]), offsets[index])
                        coming.missing.discard(index)
        return coming

    def _keep(self, manifest: Manifest, slot: str = "", facts: Facts | None = None, giver: str = "") -> None:
        key = manifest.id
        body = {"slot": slot, "manifest": manifest.text.decode(), "facts": facts, "giver": giver}
        text = records.seal(json.dumps(body).encode())
        write_atomic(self._folder / "manifests" / key, text)
        if facts is not None:
            self._homes[key] = slot
            self.facts[key] = facts
        if giver:
            self._givers[key] = giver
        self.manifests[key] = manifest

    def _recover(self) -> None:
        for path, data in self._texts("manifests"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                body = json.loads(records.unseal(data))
                manifest = records.manifest(body["manifest"].encode())
                slot = str(body["slot"])
                there = self.slot(slot) if slot else self._file(manifest.id)
                if manifest.id == path.name and _size(there) >= manifest.size:
                    self.manifests[manifest.id] = manifest
                    if slot:
                        self._homes[manifest.id] = slot
                        self.facts[manifest.id] = Facts(*body["facts"])
                    if giver := str(body.get("giver", "")):
                        self._givers[manifest.id] = giver
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
        # What was on its way to an earlier agent is sent again.
        for path in (self._folder / "files").iterdir():
            if path.name not in self.manifests:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(records.unseal((self._folder / "state.json").read_bytes()))
            self.incarnation, self.seen = int(state["incarnation"]), int(state["seen"])
            self.marks = {Tier(tier): Generation(*pair) for tier, pair in state["marks"].items()}
            # An agent that ended before it had given something up goes on with it.
            self.warrant = str(state.get("warrant", ""))
            self.withdrawn = [key for key in state.get("withdrawn", ()) if key not in self.manifests]

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
            "warrant": self.warrant,
        }
        write_atomic(self._folder / "state.json", records.seal(json.dumps(state).encode()))


def owner_of(slot: str) -> tuple[str, str]:
    """Whose slot it is by its name, and of which kind."""
    owner, _, number = slot.rpartition("-")
    return owner, SEGMENTS if number.startswith(SEGMENTS) else BASES


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def write_atomic(path: Path, data: digest.Buffer) -> None:
    """All of it or nothing, as far as the kernel lives. OSError."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
