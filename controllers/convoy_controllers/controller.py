"""The description of one controller. One reconciler in the operator runs all of them.

A controller observes one object through a `Reader` and plans; the operator carries out the plan. The
operator derives its caches, the changes that queue a key, and its RBAC rights from this description.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Child
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import Resource, resource_of
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.kind import Kind
from convoy_crds.terms import ConditionType

O = TypeVar("O")  # noqa: E741 - the observation
Name = tuple[str, str]
"""Namespace and name of an object."""
Keys = Callable[[Reader, Any | None, Any | None], Iterable[Name]]
"""(reader, object before, object after) -> the objects of the controller that the change affects."""


def _any_change(item: Any) -> Hashable:
    return object()


def _never(before: Any | None, after: Any | None) -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """Changes of other objects that queue objects of the controller."""

    resource: Resource
    keys: Keys
    concern: Callable[[Any], Hashable] = _any_change
    """The part of an object that matters. A change that leaves this part equal queues nothing."""
    urgent: Callable[[Any | None, Any | None], bool] = _never
    """(before, after) -> True queues the key at once. All other changes wait for the debounce."""
    own: bool = True
    """False ignores the operator's own writes."""
    index: str = ""
    """Path of the field by which `Reader.referring` finds objects of the controller. A list has `[]` behind
    its name: `spec.engine.name`, `spec.arms[].engine`.
    """


def by_field(
    kind: Kind[Any],
    resource: Resource,
    path: str,
    concern: Callable[[Any], Hashable] = _any_change,
    when: Callable[[CachedObject], bool] = lambda parent: True,
) -> Watch:
    """Queue the objects of `kind` whose field at `path` names the changed object, if `when` is true for
    them.

    An object with a namespace queues only objects of its own namespace. Objects that are over are not
    queued.
    """

    def keys(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
        item: Any = after if after is not None else before
        return [
            (one.namespace, one.name)
            for one in reader.referring(kind, path, item.name)
            if item.namespace in ("", one.namespace) and when(one)
        ]

    return Watch(resource, keys, concern, index=path)


def by_owner(kind: Kind[Any], resource: Resource, concern: Callable[[Any], Hashable] = _any_change) -> Watch:
    """Queue the object of `kind` that owns the changed object as its controller. Only applied objects have
    one.
    """

    def keys(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
        item: Any = after if after is not None else before
        owner = item.owner
        return [(item.namespace, owner["name"])] if owner.get("kind") == kind.name else []

    return Watch(resource, keys, concern)


def every(
    kind: Kind[Any],
    resource: Resource,
    concern: Callable[[Any], Hashable] = _any_change,
    *,
    own: bool = True,
) -> Watch:
    """Queue all objects of `kind` that are not over."""

    def keys(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
        return [(one.namespace, one.name) for one in reader.live(kind)]

    return Watch(resource, keys, concern, own=own)


def itself(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return the changed object, which belongs to the controller itself; nothing if it was deleted."""
    return [(after.namespace, after.name)] if after is not None else []


def every_node(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return all nodes."""
    return [("", node.name) for node in reader.nodes()]


def all_agents(reader: Reader, key: Key) -> Iterable[str]:
    """Return all nodes, to wait for their agents. An agent that has not connected yet would look silent."""
    return [node.name for node in reader.nodes()]


@dataclass(frozen=True, slots=True)
class Pace:
    """The pause of a key after a reconcile, in proportion to the processor time of that reconcile."""

    min_seconds: float
    """Shortest pause, in seconds."""
    max_seconds: float
    """Longest pause, in seconds."""
    pause_ratio: float = 10.0
    """Seconds of pause for each second of processor time."""

    def pause_seconds(self, spent: float) -> float:
        """Return the seconds that the key pauses after `spent` seconds of processor time."""
        return min(self.max_seconds, max(self.min_seconds, self.pause_ratio * spent))


@dataclass(frozen=True, slots=True)
class Makes:
    """A resource that plans of the controller change, and the types of children that do it."""

    resource: Resource
    children: tuple[type[Child], ...]
    subresource: str = ""
    """`status` if the children apply fields of the status."""
    owned: bool = True
    """False if the objects may outlive the object that the plan belongs to."""

    @property
    def applied(self) -> bool:
        """True if plans apply whole objects of this resource. The operator caches these by its own label."""
        return Apply in self.children and not self.subresource


@dataclass(frozen=True, slots=True)
class Validity:
    """The part of a status that says whether the object is valid."""

    condition: str = ConditionType.READY
    phase: str = ""
    """The phase of an invalid object that has no phase yet; empty for kinds without phases."""


Explain = Callable[[Any, Mapping[str, Any], str, tuple[Any, ...]], Refusal | None]
"""(model of the parent, refused manifest, message, causes) -> the refusal in terms of the parent's fields."""


@dataclass(frozen=True)
class Controller(Generic[O]):
    """One controller: what it observes, how it plans, what it changes and what queues it."""

    subject: Kind[Any] | Resource
    """The kind of the objects, or their resource if they are not of one of Convoy's kinds."""
    observe: Callable[[Reader, Key], O | None]
    """Returns None for an object that the controller must leave alone."""
    summary: str
    """One sentence for the reference: what the controller decides."""
    plan: Callable[[O, datetime], Plan]
    makes: tuple[Makes, ...] = ()
    watches: tuple[Watch, ...] = ()
    validity: Validity | None = field(default_factory=Validity)
    """None for kinds without conditions: an invalid object then gets an Event only."""
    manages: Callable[[Mapping[str, Any]], bool] = lambda raw: True
    """False for objects (as JSON) that belong to another controller. The operator does not even parse them.
    """
    waits_for: Callable[[Reader, Key], Iterable[str]] = lambda reader, key: ()
    """Nodes whose agents must have had time to report before the operator reconciles the object."""
    progress: frozenset[str] = frozenset()
    """Status fields that change all the time. The operator limits how often it writes them, to spare etcd."""
    over: Callable[[CachedObject], bool] = lambda parent: False
    """True for an object that only its own changes can still queue."""
    deletes: bool = False
    """True if plans may delete the object itself."""
    explain: Explain = lambda model, manifest, message, causes: Refusal(message)
    pace: Pace | None = None
    in_thread: bool = False
    """True for plans that take long. They run in a thread, so that the leader can renew its Lease
    meanwhile.
    """
    reflector: bool = False
    """True for kinds with as many objects as there are nodes. Their watch bypasses kopf, which would cost
    too much. When many nodes fail at once, their requests also must not queue behind those for the pods
    of jobs.
    """

    @property
    def resource(self) -> Resource:
        """The resource of the objects."""
        return self.subject if isinstance(self.subject, Resource) else resource_of(self.subject)

    @property
    def kind(self) -> Kind[Any] | None:
        """The kind of the objects; None if they are not of one of Convoy's kinds."""
        return None if isinstance(self.subject, Resource) else self.subject

    def key(self, namespace: str, name: str) -> Key:
        """Return the key of an object."""
        return Key(self.resource.kind, namespace, name)
