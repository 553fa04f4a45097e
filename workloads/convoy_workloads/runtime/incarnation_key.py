"""The key of a rank's incarnation. Only the ranks of the same incarnation have it, so that they can
authenticate each other.

The node's agent writes the key into the pod's folder before the ranks start, and replaces it for each
incarnation. The variable CONVOY_KEY_FILE names the file. It holds 32 bytes as hexadecimal digits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CONVOY_KEY_FILE"
BYTES = 32


class KeyUnreadable(RuntimeError):
    """The file with the key is missing or invalid."""


def read(environ: Mapping[str, str] = os.environ, variable: str = VARIABLE) -> bytes | None:
    """Return the key in the file that `variable` names; None outside a cluster, where it is not set. Raises
    KeyUnreadable if the file is missing or invalid.
    """
    path = environ.get(variable)
    if not path:
        return None
    try:
        key = bytes.fromhex(Path(path).read_text("ascii").strip())
    except (OSError, ValueError) as error:
        # The error text of fromhex names a position, never the contents.
        raise KeyUnreadable(f"{variable}={path}: the key cannot be read: {error}") from None
    if len(key) != BYTES:
        raise KeyUnreadable(f"{variable}={path}: the key has {len(key)} bytes, not {BYTES}")
    return key
