"""What the operator remembers of the API server: versioned stores that never go back in time.

Each store takes news from two sides: from watches, late and in order, and from answers to the operator's
own writes, at once. The higher resourceVersion wins, so that a reconcile sees what it wrote (the
expectations of other controllers) and a slow watch cannot undo it. Uids of deleted objects are remembered
for a while, so that the answer to a create cannot bring back what its watch has already seen go. To a watch
by labels an object that loses its label goes too, and may come back at a later version.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

_TOMBSTONES = 20_000


class Versioned(Protocol):
    """What a store needs to know of its items."""

    @property
    def namespace(self) -> str:
        """Empty for cluster-scoped objects."""

    @property
    def name(self) -> str:
        """Name within the namespace."""

    @property
    def uid(self) -> str:
        """Of this object, never used again."""

    @property
    def version(self) -> int:
        """resourceVersion."""


T = TypeVar("T", bound=Versioned)

Listener = Callable[[T | None, T | None, bool], None]
"""Told (before, after, own) of every change; one of the first two may be None. `own` is true for the answer
to a write of the operator's own that it need not look at again."""


class Store(Generic[T]):
    """Objects of one resource by namespace and name, with one optional index."""

    def __init__(self, index: Callable[[T], tuple[str, str]] | None = None) -> None:
        self._items: dict[tuple[str, str], T] = {}
        self._by_uid: dict[str, T] = {}
        self._index = index
        self._indexed: dict[tuple[str, str], dict[str, T]] = {}
        self._indexes: dict[str, tuple[Callable[[T], Iterable[str]], dict[str, dict[str, T]]]] = {}
        self._tombstones: OrderedDict[str, float] = OrderedDict()
        """By uid, the version up to which an object is known to be gone."""
        self._listeners: list[Listener[T]] = []
        self.newest = 0
        """The highest resourceVersion of any object taken in."""

    def listen(self, listener: Listener[T]) -> None:
        """Calls `listener` on every change from now on."""
        self._listeners.append(listener)

    def get(self, namespace: str, name: str) -> T | None:
        """The object of that name."""
        return self._items.get((namespace, name))

    def by_uid(self, uid: str) -> T | None:
        """The object of that uid."""
        return self._by_uid.get(uid)

    def indexed(self, key: tuple[str, str]) -> list[T]:
        """Objects with that index key, by name."""
        return sorted(self._indexed.get(key, {}).values(), key=lambda item: item.name)

    def add_index(self, name: str, keys: Callable[[T], Iterable[str]]) -> None:
        """Index objects by `keys`. An object may have several, or none."""
        self._indexes[name] = keys, {}
        for item in self:
            self._link(item)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that have that value in an index, by name."""
        found = self._indexes[name][1].get(value, {})
        return sorted(found.values(), key=lambda item: (item.namespace, item.name))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def upsert(self, item: T, *, own: bool = False) -> bool:
        """Takes an object in unless it is older than what is known; whether it was news."""
        if item.version <= self._tombstones.get(item.uid, -1):
            return False
        key = (item.namespace, item.name)
        before = self._items.get(key)
        if before is not None and before.version >= item.version:
            return False
        self._tombstones.pop(item.uid, None)
        self._put(key, before, item, own)
        return True

    def remove(self, item: T, *, final: bool = True) -> bool:
        """Forgets a deleted object; a newer one of the same name stays. Whether it was known.

        `final`: False if the object may be there still, without the label that is watched, and come back.
        """
        self._add_tombstone(item.uid, math.inf if final else item.version)
        key = (item.namespace, item.name)
        before = self._items.get(key)
        if before is None or before.uid != item.uid or not (final or before.version <= item.version):
            return False
        self._drop(key, before)
        return True

    def replace(self, items: Iterable[T], version: int, floor: int = 0) -> None:
        """Takes a LIST made at `version`: what it lacks is deleted, unless it came into being since.

        `floor`: the newest version that was known before the LIST was asked for. A LIST below it tells that
        the server itself went back in time, to a backup of its etcd: then all that is known is wrong.
        """
        if version < floor:
            self._tombstones.clear()
            self.newest = version
            for key, item in list(self._items.items()):
                self._drop(key, item)
        listed = set()
        for item in items:
            listed.add(item.uid)
            self.upsert(item)
        for key, item in list(self._items.items()):
            if item.uid not in listed and item.version <= version:
                self._add_tombstone(item.uid, version)
                self._drop(key, item)

    def _put(self, key: tuple[str, str], before: T | None, item: T, own: bool) -> None:
        if before is not None:
            self._unlink(before)
            if before.uid != item.uid:
                self._add_tombstone(before.uid, math.inf)
        self.newest = max(self.newest, item.version)
        self._items[key] = item
        self._by_uid[item.uid] = item
        if self._index is not None:
            self._indexed.setdefault(self._index(item), {})[item.uid] = item
        self._link(item)
        self._notify(before, item, own)

    def _drop(self, key: tuple[str, str], item: T) -> None:
        del self._items[key]
        self._unlink(item)
        self._notify(item, None, False)

    def _unlink(self, item: T) -> None:
        self._by_uid.pop(item.uid, None)
        if self._index is not None:
            key = self._index(item)
            group = self._indexed.get(key, {})
            group.pop(item.uid, None)
            if not group:
                self._indexed.pop(key, None)

        for keys_of, groups in self._indexes.values():
            for value in keys_of(item):
                members = groups.get(value, {})
                members.pop(item.uid, None)
                if not members:
                    groups.pop(value, None)

    def _link(self, item: T) -> None:
        for keys_of, groups in self._indexes.values():
            for value in keys_of(item):
                groups.setdefault(value, {})[item.uid] = item

    def _add_tombstone(self, uid: str, version: float) -> None:
        self._tombstones[uid] = max(version, self._tombstones.get(uid, -1))
        self._tombstones.move_to_end(uid)
        while len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _notify(self, before: T | None, after: T | None, own: bool) -> None:
        for listener in self._listeners:
            listener(before, after, own)
