"""The installed version of Convoy."""

from __future__ import annotations

from importlib import metadata


def _installed() -> str:
    try:
        return metadata.version("convoy-operator")
    except metadata.PackageNotFoundError:
        return ""


VERSION = _installed()
"""Version of the package; empty in a checkout that is not installed."""
