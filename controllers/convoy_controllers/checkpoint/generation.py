"""Names of saved states, and the tiers that hold them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

START_STEP = 0
"""Under this step of an incarnation's own goes what it began with, when its copies are made anew. No save has
it.
"""
_NAME = re.compile(r"gen-(\d{1,18})-(\d{1,18})")


class Tier(StrEnum):
    """Where copies lie, in the order in which a generation gets there."""

    LOCAL = "local"
    """Memory of the node whose rank wrote it."""
    PEER = "peer"
    """Memory of other nodes as well."""
    REMOTE = "remote"
    """A store that outlives the cluster's memory."""


class Generation(NamedTuple):
    """The state after `step` steps, saved by `incarnation`. Ordered as they supersede one another."""

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """As it appears in stores and logs."""
        return f"gen-{self.incarnation}-{self.step}"


def parse_name(name: str) -> Generation | None:
    """The generation of that name; None for any other text."""
    match = _NAME.fullmatch(name)
    return Generation(int(match[1]), int(match[2])) if match else None
