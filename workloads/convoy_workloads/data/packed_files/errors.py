"""The error of archives that cannot be read or written."""

from __future__ import annotations


class PackedFilesError(ValueError):
    """An archive or a folder cannot be used. The message names the path, the place and the remedy."""
