"""The type of reasons in conditions, Events and `status.reason`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason: its CamelCase name, its message template, and whether it is a warning to the user."""

    name: str
    message: str
    warning: bool = False

    def format(self, **facts: Any) -> str:
        """Return the message with its facts filled in. Raise KeyError if a fact is missing."""
        return self.message.format(**facts)
