"""All that a decision about a CheckpointStore may look at. Nothing here holds a credential."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.checkpointstore import CheckpointStore


@dataclass(frozen=True, slots=True)
class Probe:
    """What an agent found out when it tried the store."""

    node: str
    at: datetime
    reached: bool
    conditional: bool = False
    """Of several who write the same, one does."""
    checksums: bool = False
    unmounted: bool = False
    """Its claim is not mounted into that agent."""
    message: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What is known of the Secret, but for its content. A volume has none, and nothing is wrong with it."""

    unreadable: str = ""
    """Why it cannot be read; empty when it can."""
    missing: tuple[str, ...] = ()
    """Keys that it lacks, or that are empty."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the store and what was found out about it."""

    store: CheckpointStore
    namespace: str = ""
    """The operator's, where the Secret is, or the claim."""
    secret: Secret = field(default_factory=Secret)
    probe: Probe | None = None
    """The last one with what the store and its Secret are now."""
    probing_node: str = ""
    """The node whose agent is trying it at this moment."""
    fresh: bool = False
    """The store, its Secret or this leader is so new that an answer may still come."""
