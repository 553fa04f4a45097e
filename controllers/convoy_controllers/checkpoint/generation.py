"""Names of saved states, and the tiers that keep them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

START_STEP = 0
"""Step number under which an incarnation copies the state that it started from. A save never has this
number.
"""
_NAME = re.compile(r"gen-(\d{1,18})-(\d{1,18})")


class Tier(StrEnum):
    """The tiers of storage, in the order in which a generation reaches them."""

    LOCAL = "local"
    """Memory of the nodes whose ranks saved the generation. Each node keeps the shards of its own ranks."""
    PEER = "peer"
    """Memory of other nodes, which keep copies of the shards."""
    REMOTE = "remote"
    """A store that keeps its data even if the memory of all nodes is lost."""


class Generation(NamedTuple):
    """The state after `step` steps, saved by `incarnation`. The greater of two tuples is the newer
    generation.
    """

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """Return the name that stores and logs use."""
        return f"gen-{self.incarnation}-{self.step}"


def parse_name(name: str) -> Generation | None:
    """Return the generation with this name; None if the text is not the name of a generation."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None
