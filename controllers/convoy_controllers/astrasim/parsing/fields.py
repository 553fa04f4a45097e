"""Reads fields of JSON values, with errors that name the path of the field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

E = TypeVar("E", bound=StrEnum)

LARGEST = 2**53
"""Largest whole number: ASTRA-sim computes with floating-point numbers, which are exact up to here."""


class InvalidInput(ValueError):
    """Raised for a field with an invalid value."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class Field:
    """A JSON value and its path."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def error(self, message: str) -> InvalidInput:
        """Return the error of this field."""
        return InvalidInput(self.path or "file", message)

    def members(self) -> Mapping[str, Any]:
        """Return the value as a mapping."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be a mapping, is {_shown(self.value)}")
        return self.value

    def only(self, known: frozenset[str]) -> None:
        """Raise InvalidInput if the mapping has a member that is not known."""
        for name in self.members():
            if name not in known:
                raise self._child(name).error("there is no such field")

    def has(self, name: str) -> bool:
        """Return True if the mapping has a member with a value."""
        return self.members().get(name) is not None

    def __getitem__(self, name: str) -> Field:
        """Return a member, which must exist."""
        if not self.has(name):
            raise self._child(name).error("is required")
        return self._child(name)

    def items(self) -> Iterator[Field]:
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.error(f"must be a list, is {_shown(self.value)}")
        for number, value in enumerate(self.value):
            yield Field(value, f"{self.path}[{number}]")

    def text(self) -> str:
        """Return the value as text."""
        if not isinstance(self.value, str):
            raise self.error(f"must be text, is {_shown(self.value)}")
        return self.value

    def choice(self, kind: type[E]) -> E:
        """Return the value as a member of an enumeration."""
        try:
            return kind(self.text())
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
            names = ", ".join(kind)
            raise self.error(f"must be one of {names}, is {_shown(self.value)}") from None

    def flag(self) -> bool:
        """Return the value as true or false. Upstream's files also use 0 and 1."""
        if isinstance(self.value, bool) or (isinstance(self.value, int) and self.value in {0, 1}):
            return bool(self.value)
        raise self.error(f"must be true or false, is {_shown(self.value)}")

    def whole(self, least: int = 0, most: int = LARGEST) -> int:
        """Return the value as a whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.error(f"must be a whole number, is {_shown(self.value)}")
        if not least <= self.value <= most:
            raise self.error(f"must be from {least} to {most}, is {self.value}")
        return self.value

    def number(self, least: float = 0.0, above: float | None = None) -> float:
        """Return the value as a number of at least `least`, or above `above`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error(f"must be a number, is {_shown(self.value)}")
        try:
            found = float(self.value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found) or found > LARGEST:
            raise self.error(f"must be at most {LARGEST}, is {_shown(self.value)}")
        if found < least or (above is not None and found <= above):
            limit = f"at least {least:g}" if above is None else f"above {above:g}"
            raise self.error(f"must be {limit}, is {_shown(self.value)}")
        return found

    def _child(self, name: str) -> Field:
        path = f"{self.path}.{name}" if self.path else name
        return Field(self.members().get(name), path)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = json.dumps(value, ensure_ascii=False, default=str)
            # JSON may hold half of a surrogate pair, which no output can encode.
            text = text.encode("utf-8", "backslashreplace").decode()
            return text if len(text) <= 60 else text[:57] + "..."
