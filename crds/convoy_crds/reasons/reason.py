"""A reason: what a condition, an Event and `status.reason` carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """A typed reason: its CamelCase name, whether it is trouble for the user, and its message template."""

    name: str
    message: str
    warning: bool = False

    def format(self, **facts: Any) -> str:
        """The message with its facts filled in; KeyError when one is missing."""
        return self.message.format(**facts)
