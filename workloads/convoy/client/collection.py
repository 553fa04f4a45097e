"""Collections of objects of one kind, with the methods get, list, create and delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import JsonValue, ValidationError

from convoy.client.api import Api
from convoy.client.errors import AlreadyExists, FieldError, Invalid
from convoy_crds.kind import Kind
from convoy_crds.meta import API_VERSION, GROUP, VERSION, Model

M = TypeVar("M", bound=Model)
"""The model of a kind."""

MERGE = "application/merge-patch+json"
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


class Collection(Generic[M]):
    """The objects of one kind, with methods to read them."""

    def __init__(self, api: Api, kind: Kind[M]) -> None:
        self._api = api
        self._kind = kind

    def get(self, name: str) -> M:
        """Return one object. Raises NotFound if it does not exist."""
        return self._read(self._call("get", name))

    def list(self, *, everywhere: bool = False, label_selector: str | None = None) -> list[M]:
        """Return the objects in the client's namespace. If `everywhere` is True, return the objects of all
        namespaces.

        `label_selector` has the syntax of `kubectl get -l`.
        """
        selected = {"label_selector": label_selector} if label_selector else {}
        if everywhere and self._kind.namespaced:
            custom = self._api.custom
            found = self._api.call(
                custom.list_cluster_custom_object, GROUP, VERSION, self._kind.plural, **selected
            )
        else:
            found = self._call("list", **selected)
        return [self._read(item) for item in found["items"]]

    def _call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        method, place = self._request(verb)
        return self._api.call(method, *place, *arguments, **options)

    def _request(self, verb: str) -> tuple[Any, tuple[str, ...]]:
        """Return the method of the package kubernetes that sends `verb`, and the first arguments of that
        method.
        """
        if self._kind.namespaced:
            method = getattr(self._api.custom, f"{verb}_namespaced_custom_object")
            return method, (GROUP, VERSION, self._api.namespace, self._kind.plural)
        return getattr(self._api.custom, f"{verb}_cluster_custom_object"), (GROUP, VERSION, self._kind.plural)

    def _patch(self, name: str, body: Mapping[str, JsonValue]) -> M:
        return self._read(self._call("patch", name, dict(body), _content_type=MERGE))

    def _read(self, body: Any) -> M:
        return read(self._kind.model, body)


class Deletable(Collection[M]):
    """The objects of one kind that the operator creates and users may delete."""

    def delete(self, name: str) -> None:
        """Delete an object. Raises NotFound if it does not exist."""
        self._call("delete", name)


class Writable(Deletable[M]):
    """The objects of one kind that users create and delete."""

    def create(self, body: M | Mapping[str, Any]) -> M:
        """Create an object from a model, or from a manifest as a dict. Return the object as the API server
        stored it.

        Raises Invalid, with field paths, if a field is invalid or unknown. Raises AlreadyExists if an
        object of that name exists.
        """
        wanted = manifest(self._kind.model, body)
        return self._read(self._call("create", wanted, field_validation="Strict"))

    def dry_run(self, body: M | Mapping[str, Any]) -> M:
        """Let the API server check an object, including admission, without storing it. Raises the same
        errors as `create`, except AlreadyExists.

        If an object of that name exists, the API server instead checks whether its spec may be changed to
        the given spec.
        """
        wanted = manifest(self._kind.model, body)
        options = {"field_validation": "Strict", "dry_run": "All"}
        try:
            return self._read(self._call("create", wanted, **options))
        except AlreadyExists:
            name, change = wanted["metadata"]["name"], {"spec": wanted.get("spec")}
            return self._read(self._call("patch", name, change, _content_type=MERGE, **options))


def read(model: type[M], body: Any) -> M:
    """Return the model of a stored object. Fields that this version of Convoy does not know or cannot parse
    are left out.

    Raises Invalid if the object cannot be parsed without these fields.
    """
    while True:
        try:
            return model.model_validate(body, extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            try:
                body = _without(body, *first["loc"])
            except (LookupError, TypeError):
                flaw = FieldError(".".join(map(str, first["loc"])), str(first["msg"]))
                raise Invalid(f"the object cannot be parsed: {flaw}", (flaw,)) from error


def _without(value: Any, key: int | str = "", *inside: int | str) -> Any:
    """Return a copy of `value` without the entry at the path `key`, `*inside`. Raises LookupError or
    TypeError if there is no entry at that path.
    """
    found = value[key]
    kept = [_without(found, *inside)] if inside else []
    if isinstance(value, list) and isinstance(key, int):
        return [*value[:key], *kept, *value[key + 1 :]]
    others = {name: item for name, item in value.items() if name != key}
    return {**others, key: kept[0]} if kept else others


def manifest(model: type[M], body: M | Mapping[str, Any]) -> dict[str, Any]:
    """Return the request body that creates an object. It has neither the status nor the fields that the API
    server sets.
    """
    made = dict(body) if isinstance(body, Mapping) else body.to_dict()
    head = {"apiVersion": API_VERSION, "kind": model.__name__}
    wrong = tuple(
        FieldError(field, f"must be {value}, is {made[field]!r}")
        for field, value in head.items()
        if made.get(field, value) != value
    )
    if wrong:
        raise Invalid("; ".join(map(str, wrong)), wrong)
    made.pop("status", None)
    metadata = made.get("metadata")
    if isinstance(metadata, Mapping):
        made["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    return {**made, **head}
