"""Names with indices: `nic[0:2]` selects the first two. Indices follow Python's slices."""

from __future__ import annotations

import re

from convoy_controllers.astrasim.parsing.fields import Field

_NAME = r"[A-Za-z0-9_\-]{1,253}"
_PART = re.compile(rf"({_NAME})(?:\[([0-9:\-]{{0,40}})\])?")


def parts(field: Field, text: str) -> list[tuple[str, str]]:
    """Return the names and the slices of a path such as `card[0].port[1:3]`."""
    found = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise field.error(f"{part[:60]!r} is no name with indices, such as nic or nic[0:2]")
        found.append((match[1], match[2] or ""))
    return found


def indices(field: Field, slice_: str, count: int) -> range:
    """Return the selected indices of `count`. An empty slice selects all."""
    try:
        bounds = [int(one) if one else None for one in slice_.split(":")]
        if len(bounds) > 1:
            return range(*slice(*bounds).indices(count))
    except (TypeError, ValueError):
        raise field.error(f"[{slice_}] is no slice, such as [0:2]") from None
    (index,) = bounds
    if index is None:
        return range(count)
    if not -count <= index < count:
        raise field.error(f"[{slice_}] is out of range: there are {count}, from 0")
    return range(index % count, index % count + 1)
