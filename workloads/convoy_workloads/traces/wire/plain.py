"""The messages of a trace in the standard library alone: for pods, whose images may have no protobuf, or
another version of it.

They have as much of protobuf's interface as the conversion and the analysis use, and the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

_VARINT, _DOUBLE, _TEXT, _MESSAGE, _NUMBERS = range(5)
_WIRE = {_VARINT: 0, _DOUBLE: 1, _TEXT: 2, _MESSAGE: 2, _NUMBERS: 2}
"""Wire type of each kind of field."""


def varint(value: int) -> bytes:
    """Return a base-128 varint; that of a negative number has the bits of its 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Plain:
    """A message. Fields that are not given have protobuf's defaults."""

    fields: ClassVar[tuple[tuple[int, str, int, Any], ...]]
    """Number, name, kind and default of each field; the default of a list or message is its class."""

    def __init__(self, **values: Any) -> None:
        for _, name, _, default in self.fields:
            setattr(self, name, default() if isinstance(default, type) else default)
        for name, value in values.items():
            setattr(self, name, list(value) if isinstance(value, (list, tuple)) else value)

    def SerializeToString(self, deterministic: bool = True) -> bytes:
        """Return the bytes of the message. They are always deterministic."""
        out = bytearray()
        for number, name, kind, default in self.fields:
            value = getattr(self, name)
            many = kind == _MESSAGE and default is list
            for one in value if many else [value]:
                body = self._encode(kind, one)
                if body or many:
                    out += varint(number << 3 | _WIRE[kind])
                    out += varint(len(body)) + body if _WIRE[kind] == 2 else body
        return bytes(out)

    @staticmethod
    def _encode(kind: int, value: Any) -> bytes:
        """Return the bytes of a value without its length; none for a default, which is left out."""
        if kind == _VARINT:
            return varint(int(value)) if value else b""
        if kind == _TEXT:
            return str(value).encode()
        if kind == _NUMBERS:
            return b"".join(map(varint, value))
        return bytes(value.SerializeToString())


class IOInfo(_Plain):
    """Arguments or results of a node."""

    fields = ((1, "values", _TEXT, ""), (2, "shapes", _TEXT, ""), (3, "types", _TEXT, ""))


class AttributeProto(_Plain):
    """A named value, which stands in one of several fields."""

    _places: ClassVar[dict[str, tuple[int, int]]] = {
        "double_val": (3, _DOUBLE),
        "int32_val": (7, _VARINT),
        "int64_val": (9, _VARINT),
        "uint64_val": (13, _VARINT),
        "bool_val": (27, _VARINT),
        "string_val": (29, _TEXT),
    }
    fields = ((1, "name", _TEXT, ""), (2, "doc_string", _TEXT, ""))

    def __init__(self, **values: Any) -> None:
        self._field: str | None = next((name for name in values if name in self._places), None)
        super().__init__(**values)

    def WhichOneof(self, _: str) -> str | None:
        """Return the field that holds the value; None without a value."""
        return self._field

    def SerializeToString(self, deterministic: bool = True) -> bytes:
        """Return the bytes of the message. The value is written even if it is a default."""
        out = super().SerializeToString(deterministic)
        if self._field is None:
            return out
        number, kind = self._places[self._field]
        value = getattr(self, self._field)
        if kind == _DOUBLE:
            body = struct.pack("<d", value)
        elif kind == _TEXT:
            text = str(value).encode()
            body = varint(len(text)) + text
        else:
            body = varint(int(value))
        return out + varint(number << 3 | _WIRE[kind]) + body


class GlobalMetadata(_Plain):
    """Facts about the whole trace."""

    fields = ((1, "version", _TEXT, ""), (2, "attr", _MESSAGE, list))


class Node(_Plain):
    """One piece of work of a rank."""

    fields = (
        (1, "id", _VARINT, 0),
        (2, "name", _TEXT, ""),
        (3, "type", _VARINT, 0),
        (4, "ctrl_deps", _NUMBERS, list),
        (5, "data_deps", _NUMBERS, list),
        (6, "start_time_micros", _VARINT, 0),
        (7, "duration_micros", _VARINT, 0),
        (8, "inputs", _MESSAGE, IOInfo),
        (9, "outputs", _MESSAGE, IOInfo),
        (10, "attr", _MESSAGE, list),
    )
