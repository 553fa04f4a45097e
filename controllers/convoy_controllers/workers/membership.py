"""The digest of the pods in an incarnation. It shows whether a pod was replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def membership(uids: Iterable[str]) -> str:
    """Return a digest of the pods that form an incarnation, in slot order."""
    return hashlib.sha256("\n".join(uids).encode()).hexdigest()[:16]
