"""Names of saved states, and the tiers that keep them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

START_STEP = 0
"""Step under which an incarnation keeps a copy of the state it started from, when that state is copied
again. A save never has this step.
"""
_NAME = re.compile(r"gen-(\d{1,18})-(\d{1,18})")


class Tier(StrEnum):
    """The tiers of storage, in the order in which a generation reaches them."""

    LOCAL = "local"
    """Memory of the node whose rank saved it."""
    PEER = "peer"
    """Memory of other nodes."""
    REMOTE = "remote"
    """A store that outlives the memory of the cluster."""


class Generation(NamedTuple):
    """The state after `step` steps, saved by `incarnation`. A greater generation replaces a smaller one."""

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """The name in stores and logs."""
        return f"gen-{self.incarnation}-{self.step}"


def parse_name(name: str) -> Generation | None:
    """Return the generation of that name; None for any other text."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None
