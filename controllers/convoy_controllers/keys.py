"""The key of one object in the work queue."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One object that a controller reconciles."""

    kind: str
    namespace: str
    """Namespace of the object; empty for cluster-scoped kinds."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"
