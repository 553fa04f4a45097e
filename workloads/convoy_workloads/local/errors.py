"""The error of a manifest that cannot run on this machine."""

from __future__ import annotations


class LocalError(Exception):
    """Raised if the manifest cannot run on this machine. The message names the field and says what to do."""
