"""The class of reasons, which appear in conditions, in Events and in `status.reason`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason. It has a CamelCase name, a message template, and a flag for a warning."""

    name: str
    message: str
    warning: bool = False

    def format(self, **facts: Any) -> str:
        """Return the message with the values of `facts` filled in. Raises KeyError if a value is missing."""
        return self.message.format(**facts)
