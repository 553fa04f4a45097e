"""The output formats of commands that print text or JSON."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"
