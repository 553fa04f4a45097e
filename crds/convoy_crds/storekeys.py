"""Reads the keys in the Secret of a CheckpointStore. The functions are pure and never log a key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from convoy_crds.checkpointstore import KEY_ACCESS, KEY_SECRET, KEY_SESSION, REQUIRED_KEYS


def decoded(secret: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys in the Secret of a store as text. Spaces and line ends around a key are removed,
    because editors may add them.

    Keys that are absent, empty or not text are left out.
    """
    data: Mapping[str, Any] = secret.get("data") or {}
    found: dict[str, str] = {}
    for key in (KEY_ACCESS, KEY_SECRET, KEY_SESSION):
        try:
            text = base64.b64decode(data.get(key) or "", validate=True).decode().strip()
        except (binascii.Error, ValueError, TypeError):
            continue
        if text:
            found[key] = text
    return found


def missing(data: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the required keys that the decoded Secret lacks."""
    return tuple(key for key in REQUIRED_KEYS if key not in data)
