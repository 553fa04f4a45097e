"""The description of one controller. The operator's one reconciler carries out all of them.

A controller observes one object through a `Reader`, plans, and leaves the doing to the operator. The caches
that are kept, the changes that wake a key, and the operator's rights are derived from this description.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from convoy_controllers.cached import Parent
from convoy_controllers.children import Apply, Child
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import Resource, of
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.kind import Kind
from convoy_crds.terms import ConditionType

O = TypeVar("O")  # noqa: E741 - the observation
Name = tuple[str, str]
"""Namespace and name of an object."""
Keys = Callable[[Reader, Any | None, Any | None], Iterable[Name]]
"""(reader, object before, object after) -> the objects of the controller that the change concerns."""


def _any_change(item: Any) -> Hashable:
    return object()


def _never(before: Any | None, after: Any | None) -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """Changes of other objects that wake objects of the controller."""

    resource: Resource
    keys: Keys
    concern: Callable[[Any], Hashable] = _any_change
    """The part of an object that matters. A change that leaves it equal wakes nobody."""
    urgent: Callable[[Any | None, Any | None], bool] = _never
    """(before, after) -> True wakes at once; all other changes come in bursts and wait for the debounce."""
    own: bool = True
    """False ignores what the operator itself has written."""
    index: str = ""
    """Path of the field that `Reader.referring` looks objects of the controller up by, `[]` behind each list:
    `spec.engine.name`, `spec.arms[].engine`."""


def by_field(
    kind: Kind[Any],
    resource: Resource,
    path: str,
    concern: Callable[[Any], Hashable] = _any_change,
    when: Callable[[Parent], bool] = lambda parent: True,
) -> Watch:
    """Wake the objects of `kind` whose field at `path` names the changed object, if `when` holds of them.

    Objects with a namespace are named from their own namespace alone. Objects that are over stay asleep.
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
    """Wake the object of `kind` that owns the changed one, an applied object, as its controller."""

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
    """Wake all objects of `kind`."""

    def keys(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
        return [(one.namespace, one.name) for one in reader.live(kind)]

    return Watch(resource, keys, concern, own=own)


def itself(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return the changed object, which is the controller's own; nothing for one that is gone."""
    return [(after.namespace, after.name)] if after is not None else []


def every_node(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return all nodes."""
    return [("", node.name) for node in reader.nodes()]


def all_agents(reader: Reader, key: Key) -> Iterable[str]:
    """Return all nodes, to wait for: one whose agent has not dialled yet would seem to be silent."""
    return [node.name for node in reader.nodes()]


@dataclass(frozen=True, slots=True)
class Pace:
    """The rest of a key after a reconcile, as a multiple of the processor time that this took."""

    least: float
    """Seconds."""
    most: float
    """Seconds."""
    cost: float = 10.0
    """Seconds of rest for each second of the processor."""

    def rest(self, spent: float) -> float:
        """Return the seconds for which the key rests after `spent` seconds of the processor."""
        return min(self.most, max(self.least, self.cost * spent))


@dataclass(frozen=True, slots=True)
class Makes:
    """A resource that plans of the controller change, and by which children."""

    resource: Resource
    children: tuple[type[Child], ...]
    subresource: str = ""
    """`status` if the children apply fields of the status."""
    owned: bool = True
    """False for objects that outlive the object that had them made."""

    @property
    def applied(self) -> bool:
        """True for a resource whose objects are applied whole. They are cached by the operator's label."""
        return Apply in self.children and not self.subresource


@dataclass(frozen=True, slots=True)
class Validity:
    """The part of a status that says whether the model takes the object."""

    condition: str = ConditionType.READY
    phase: str = ""
    """The phase of an object without one that is invalid; empty for kinds without phases."""


Explain = Callable[[Any, Mapping[str, Any], str, tuple[Any, ...]], Refusal | None]
"""(model of the parent, refused manifest, message, causes) -> the refusal in words of the parent's fields."""


@dataclass(frozen=True)
class Controller(Generic[O]):
    """One controller: what it observes, how it plans, what it makes and what wakes it."""

    subject: Kind[Any] | Resource
    """The kind of the objects, or the resource where they are not of a kind of Convoy's."""
    observe: Callable[[Reader, Key], O | None]
    """None for an object that the controller has no say over."""
    summary: str
    """One sentence for the reference: what the controller decides."""
    plan: Callable[[O, datetime], Plan]
    makes: tuple[Makes, ...] = ()
    watches: tuple[Watch, ...] = ()
    validity: Validity | None = field(default_factory=Validity)
    """None for kinds without conditions: an invalid object has an Event alone."""
    manages: Callable[[Mapping[str, Any]], bool] = lambda raw: True
    """False for objects, as JSON, that are another controller's. They are not even read."""
    waits_for: Callable[[Reader, Key], Iterable[str]] = lambda reader, key: ()
    """Nodes whose agents must have had time to report before the object is judged."""
    progress: frozenset[str] = frozenset()
    """Fields of the status that move while nothing else happens. They are written as rarely as etcd asks."""
    over: Callable[[Parent], bool] = lambda parent: False
    """True for an object that nothing wakes any more but its own changes."""
    deletes: bool = False
    """True if plans may delete the object itself."""
    explain: Explain = lambda model, manifest, message, causes: Refusal(message)
    pace: Pace | None = None
    in_thread: bool = False
    """True for plans that take long: the leader's Lease must be renewed meanwhile."""
    reflector: bool = False
    """True for objects of which there are as many as nodes. kopf's watches would cost too much, and requests
    for nodes that fail together must not wait behind the pods of jobs."""

    @property
    def resource(self) -> Resource:
        """The resource of the objects."""
        return self.subject if isinstance(self.subject, Resource) else of(self.subject)

    @property
    def kind(self) -> Kind[Any] | None:
        """The kind of the objects; None where they are not of a kind of Convoy's."""
        return None if isinstance(self.subject, Resource) else self.subject

    def key(self, namespace: str, name: str) -> Key:
        """Return the key of an object."""
        return Key(self.resource.kind, namespace, name)
