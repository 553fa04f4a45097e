"""Types that all kinds share: the base class of models, object metadata and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.alias_generators import to_camel

GROUP = "convoy.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)]
"""An RFC 1123 label."""

ObjectName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        min_length=1,
        max_length=253,
    ),
]
"""Name of another object: an RFC 1123 subdomain. The API server accepts such a name for every kind."""

Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]*(s|m|h)$", max_length=16)]
"""A whole number of seconds, minutes or hours, such as `90s`, `10m` or `2h`."""

MAX_REPLICAS = 10_000
"""Maximum number of pods of one role."""

AUTO = "Auto"

DurationOrAuto = Annotated[str, Field(pattern=r"^(Auto|[1-9][0-9]*(s|m|h))$", max_length=16)]
"""A `Duration`, or the word `Auto`, which lets the operator choose."""

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds(duration: str) -> int:
    """Return the length of a `Duration` in seconds."""
    return int(duration[:-1]) * _UNIT_SECONDS[duration[-1]]


Bytes = Annotated[str, Field(pattern=r"^[1-9][0-9]*(Ki|Mi|Gi|Ti)?$", max_length=20)]
"""An amount of memory in Kubernetes' notation, such as `512Mi` or `64Gi`, or a plain number of bytes."""

_UNIT_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def in_bytes(amount: str) -> int:
    """Return the number of bytes in a `Bytes` value."""
    unit = _UNIT_BYTES.get(amount[-2:])
    return int(amount[:-2]) * unit if unit else int(amount)


class Model(BaseModel):
    """Base class for parts of a custom resource. Names are camelCase in JSON and snake_case in Python.
    Unknown fields are rejected.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", use_attribute_docstrings=True
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON values, as the API server stores it: camelCase keys, no nulls, times in
        RFC 3339.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class StatusModel(Model):
    """Base class for parts of a status. It ignores unknown fields, because a later version of the operator
    may have written them. Optional fields that are empty are left out of JSON; numbers and booleans are
    never empty.
    """

    model_config = ConfigDict(extra="ignore")

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        required = _required_names(type(self))
        found: dict[str, Any] = dump(self)
        return {name: value for name, value in found.items() if name in required or not self._empty(value)}

    @staticmethod
    def _empty(value: object) -> bool:
        return value is None or value in ("", [], {})


@cache
def _required_names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's required fields, in Python and in JSON."""
    fields = [(name, field) for name, field in model.model_fields.items() if field.is_required()]
    return frozenset(one for name, field in fields for one in (name, field.alias or name))


class Bookkeeping(StatusModel):
    """Base class for parts of a status that only the operator reads. Zeros are left out of JSON too."""

    @staticmethod
    def _empty(value: object) -> bool:
        return not value


class OpenModel(Model):
    """Base class for parts of which only some fields are typed. All other fields are kept unchanged."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL validation rule of the API server, with the message for objects that violate the rule."""

    rule: str
    message: str
    field_path: str | None = None

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the rule in the form of `x-kubernetes-validations`."""
        entry: dict[str, JsonValue] = {"rule": self.rule, "message": self.message}
        return entry | {"fieldPath": self.field_path} if self.field_path else entry


def validated(*rules: Rule) -> ConfigDict:
    """Return the configuration of a model whose objects must satisfy `rules`."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [rule.to_dict() for rule in rules]})


def map_list(key: str) -> dict[str, JsonValue]:
    """Return the schema extension for a list whose items must have different values of `key`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Condition(StatusModel):
    """Kubernetes' `metav1.Condition`."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)] = ""
    last_transition_time: datetime


class ObjectMeta(OpenModel):
    """Fields of Kubernetes object metadata that Convoy reads. All other fields are kept unchanged."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
