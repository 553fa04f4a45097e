"""The description of a controller. The operator runs all controllers with one reconciler.

A controller observes one object through a `Reader` and returns a plan, which the operator carries out. From
the description the operator derives its caches, its RBAC rights, and the changes that queue an object.
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
from convoy_controllers.resources import NODES, PODS, Resource, resource_of
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.kind import Kind
from convoy_crds.terms import ConditionType

O = TypeVar("O")  # noqa: E741 - the observation
Name = tuple[str, str]
"""Namespace and name of an object."""
Keys = Callable[[Reader, Any | None, Any | None], Iterable[Name]]
"""(reader, object before, object after) -> the controller's objects to queue after this change."""


def _any_change(item: Any) -> Hashable:
    return object()


def _never(before: Any | None, after: Any | None) -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """A watch on another resource: changes of its objects queue objects of the controller."""

    resource: Resource
    keys: Keys
    concern: Callable[[Any], Hashable] = _any_change
    """(object) -> the part of the object that matters. A change that leaves this part equal queues nothing.
    """
    urgent: Callable[[Any | None, Any | None], bool] = _never
    """(object before, object after) -> True to queue the keys at once. All other changes wait for the
    debounce.
    """
    own: bool = True
    """False to ignore changes that the operator itself has written."""
    whole: bool = False
    """True to watch all objects of the resource, not only those with the operator's label."""
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
    """Return a watch: a changed object queues the objects of `kind` whose field at `path` names it and for
    which `when` is true.

    A namespaced object queues only objects of its own namespace. Objects that have ended
    (`Controller.over`) are not queued.
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
    """Return a watch: a changed object queues its owner, if the owner is of `kind`. The owner is the
    controller in the object's owner reference. The watched objects must be cached with this reference,
    as applied children are.
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
    """Return a watch: a changed object queues all objects of `kind` that have not ended."""

    def keys(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
        return [(one.namespace, one.name) for one in reader.live(kind)]

    return Watch(resource, keys, concern, own=own)


def itself(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return the name of the changed object, so that it queues itself; nothing if the object was deleted."""
    return [(after.namespace, after.name)] if after is not None else []


def every_node(reader: Reader, before: Any | None, after: Any | None) -> Iterable[Name]:
    """Return the names of all nodes, so that a change queues every node."""
    return [("", node.name) for node in reader.nodes()]


def all_agents(reader: Reader, key: Key) -> Iterable[str]:
    """Return the names of all nodes, so that the operator first waits for their agents. Without this wait,
    an agent that has not connected yet would look silent.
    """
    return [node.name for node in reader.nodes()]


@dataclass(frozen=True, slots=True)
class Pace:
    """The pause of a key after each reconcile, in proportion to the processor time of that reconcile."""

    min_seconds: float
    """Minimum pause after a reconcile, in seconds."""
    max_seconds: float
    """Maximum pause after a reconcile, in seconds."""
    pause_ratio: float = 10.0
    """Seconds of pause for each second of processor time."""

    def pause_seconds(self, spent: float) -> float:
        """Return the seconds that the key pauses after a reconcile that took `spent` seconds of processor
        time.
        """
        return min(self.max_seconds, max(self.min_seconds, self.pause_ratio * spent))


@dataclass(frozen=True, slots=True)
class Makes:
    """A resource that the controller's plans may change, and the types of children that change it."""

    resource: Resource
    children: tuple[type[Child], ...]
    subresource: str = ""
    """`status` if the children apply fields of the status."""
    owned: bool = True
    """False if the changed objects may outlive the plan's own object."""

    @property
    def applied(self) -> bool:
        """Return True if plans apply whole objects of this resource. Convoy labels such objects, and the
        operator caches the objects with the label.
        """
        return Apply in self.children and not self.subresource


@dataclass(frozen=True, slots=True)
class Validity:
    """The part of a status that shows whether the object is valid."""

    condition: str = ConditionType.READY
    phase: str = ""
    """The phase to set on an invalid object that has no phase yet; empty for kinds without phases."""


Explain = Callable[[Any, Mapping[str, Any], str, tuple[Any, ...]], Refusal | None]
"""(model of the parent, refused manifest, message, causes) -> the refusal, with the fields of the parent
that are at fault.
"""


@dataclass(frozen=True)
class Controller(Generic[O]):
    """One controller: its input, its plans, the objects that the plans change, and the changes that queue
    its objects.
    """

    subject: Kind[Any] | Resource
    """Kind of the reconciled objects; their resource if it is not one of Convoy's kinds."""
    observe: Callable[[Reader, Key], O | None]
    """(reader, key) -> the input of `plan`; None if the controller must leave the object alone."""
    summary: str
    """One sentence for the reference: what the controller decides."""
    plan: Callable[[O, datetime], Plan]
    makes: tuple[Makes, ...] = ()
    watches: tuple[Watch, ...] = ()
    validity: Validity | None = field(default_factory=Validity)
    """The part of the status that shows whether an object is valid; None for kinds without conditions. An
    invalid object of such a kind only gets an Event.
    """
    manages: Callable[[Mapping[str, Any]], bool] = lambda raw: True
    """(object as JSON) -> False if the object belongs to another controller. The operator then does not
    even parse the object.
    """
    waits_for: Callable[[Reader, Key], Iterable[str]] = lambda reader, key: ()
    """(reader, key) -> names of nodes. The operator reconciles the object only after the agents of these
    nodes have had time to report.
    """
    progress: frozenset[str] = frozenset()
    """Status fields that change all the time. The operator limits how often it writes these fields, to
    spare etcd.
    """
    over: Callable[[CachedObject], bool] = lambda parent: False
    """(object) -> True if the object has ended. From then on only its own changes queue it."""
    deletes: bool = False
    """True if plans may delete the object itself."""
    explain: Explain = lambda model, manifest, message, causes: Refusal(message)
    pace: Pace | None = None
    in_thread: bool = False
    """True if plans take long. The operator then plans in a thread, so that the leader can still renew its
    Lease.
    """
    reflector: bool = False
    """True for kinds with one object per node. A reflector watches these objects, because kopf would cost
    too much processor time. They also have requests and a queue priority of their own, so that they do
    not delay the pods of jobs when many nodes fail at once.
    """

    @property
    def resource(self) -> Resource:
        """Return the resource of the reconciled objects."""
        return self.subject if isinstance(self.subject, Resource) else resource_of(self.subject)

    @property
    def kind(self) -> Kind[Any] | None:
        """Return the kind of the reconciled objects; None if it is not one of Convoy's kinds."""
        return None if isinstance(self.subject, Resource) else self.subject

    def key(self, namespace: str, name: str) -> Key:
        """Return the key of an object."""
        return Key(self.resource.kind, namespace, name)


def labelled_resources(controllers: Iterable[Controller[Any]]) -> tuple[Resource, ...]:
    """Return the resources whose objects carry the operator's label and that no controller reconciles: what
    plans apply, and what Kubernetes makes of it with its labels.
    """
    every = list(controllers)
    made = {made.resource for one in every for made in one.makes if made.applied}
    watched = {watch.resource for one in every for watch in one.watches} - {PODS, NODES}
    own = {one.resource for one in every if one.kind is not None}
    return _sorted((made | watched) - own - {*whole_resources(every)})


def whole_resources(controllers: Iterable[Controller[Any]]) -> tuple[Resource, ...]:
    """Return the resources of which all objects are watched, although no controller reconciles them."""
    return _sorted({watch.resource for one in controllers for watch in one.watches if watch.whole})


def _sorted(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    return tuple(sorted(resources, key=lambda one: (one.plural, one.group, one.version)))
