"""The operator's cache of API objects: versioned stores that never replace an object by an older version.

A store receives changes from two sources: watches, which are late but ordered, and responses to the
operator's own writes, which come at once. The store keeps the object with the higher resourceVersion. So a
reconcile sees the operator's own writes, and a slow watch cannot undo them. Kubernetes' built-in
controllers use "expectations" for the same purpose.

A store remembers the uids of deleted objects for a while (tombstones). Without tombstones, the late
response to a create could bring back an object after the watch has reported its deletion.

A watch with a label selector also reports an object as deleted if the object loses the label. Such an
object may return to the store at a higher resourceVersion.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

_TOMBSTONES = 20_000


class Versioned(Protocol):
    """The interface of a store's items."""

    @property
    def namespace(self) -> str:
        """Namespace; empty for cluster-scoped objects."""

    @property
    def name(self) -> str:
        """Name within the namespace."""

    @property
    def uid(self) -> str:
        """Uid of the object. No other object ever gets the same uid."""

    @property
    def version(self) -> int:
        """The resourceVersion as a number."""


T = TypeVar("T", bound=Versioned)

Listener = Callable[[T | None, T | None, bool], None]
"""Callback (before, after, own) for every change of a store.

`before` is None for a new object, `after` for a deleted one. `own` is True if the change is the response to
the operator's own write and needs no further reconcile.
"""


class Store(Generic[T]):
    """The objects of one resource, by namespace and name. Further indexes find objects by other keys."""

    def __init__(self, index: Callable[[T], tuple[str, str]] | None = None) -> None:
        self._items: dict[tuple[str, str], T] = {}
        self._by_uid: dict[str, T] = {}
        self._index = index
        self._indexed: dict[tuple[str, str], dict[str, T]] = {}
        self._indexes: dict[str, tuple[Callable[[T], Iterable[str]], dict[str, dict[str, T]]]] = {}
        self._tombstones: OrderedDict[str, float] = OrderedDict()
        """A resourceVersion for each deleted object, by uid. The store accepts the object again only at a
        higher resourceVersion. The value is infinity after a final deletion.
        """
        self._listeners: list[Listener[T]] = []
        self.newest = 0
        """The highest resourceVersion of all objects that were ever stored."""

    def listen(self, listener: Listener[T]) -> None:
        """Register `listener` for every later change."""
        self._listeners.append(listener)

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object of that namespace and name; None if there is none."""
        return self._items.get((namespace, name))

    def by_uid(self, uid: str) -> T | None:
        """Return the object of that uid; None if there is none."""
        return self._by_uid.get(uid)

    def indexed(self, key: tuple[str, str]) -> list[T]:
        """Return the objects with that key in the constructor's index, sorted by name."""
        return sorted(self._indexed.get(key, {}).values(), key=lambda item: item.name)

    def add_index(self, name: str, keys: Callable[[T], Iterable[str]]) -> None:
        """Index objects by `keys`. An object may have several keys, or none."""
        self._indexes[name] = keys, {}
        for item in self:
            self._link(item)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that have that value in an index, sorted by namespace and name."""
        found = self._indexes[name][1].get(value, {})
        return sorted(found.values(), key=lambda item: (item.namespace, item.name))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def upsert(self, item: T, *, own: bool = False) -> bool:
        """Store an object, unless the store already has the same or a newer version of it. Return True if
        it was stored.
        """
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
        """Remove an object whose deletion the API server has reported. Return True if the store contained
        it. If the store now has a newer object with the same name, keep that object.

        If the object may still exist without the label that the watch selects, pass `final=False`. The
        store then accepts the object again at a higher resourceVersion.
        """
        self._add_tombstone(item.uid, math.inf if final else item.version)
        key = (item.namespace, item.name)
        before = self._items.get(key)
        if before is None or before.uid != item.uid or not (final or before.version <= item.version):
            return False
        self._drop(key, before)
        return True

    def replace(self, items: Iterable[T], version: int, floor: int = 0) -> None:
        """Make the store equal to the result of a LIST at resourceVersion `version`.

        A stored object that the LIST does not contain is removed, unless the object's own version is higher
        than `version`.

        `floor` is the value of `newest` before the LIST was requested. If `version` is below `floor`, the
        API server was restored from an etcd backup. In that case all stored objects are dropped first.
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

    def clear(self) -> None:
        """Remove all objects, because the API server no longer serves their resource."""
        for key, item in list(self._items.items()):
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
